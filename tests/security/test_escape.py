"""The same hostile pods on the plane and on a real node get the same refusals.

The verdicts of the real node are recorded. `TORCHYARD_TESTS=full` runs the pods on a real node too and compares it with
the record, or writes the record again when TORCHYARD_RECORD is set.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.node import support
from tests.security import real_node
from tests.security.comparison import comparable, differences, is_laxer, is_same_kernel, laxer, recorded, write_record
from tests.security.contexts import CONTEXTS, OWN_MOUNTS, SecurityCase
from tests.security.declared import DIFFERENCES, ORDINARY_USER, POD_DIFFERENCES, UNSTABLE
from tests.security.escape_runner import Verdicts, collect, create_pod, hostile_pod, install, run_contexts
from tests.security.planes import HostilePlane, hostile_plane, machine_targets, open_directory, ordinary_user, this_user
from tests.security.pod_cases import POD_CASES, run_pod_cases
from tests.support.effort import FULL
from tests.support.images import pack
from tests.support.yard import yard

PLANE_IMAGE = "python:3"
# For the plane of an ordinary user: one of each kind.
ORDINARY = ("default", "restricted", "unconfined", "privileged", "host-network", "host-pid", "host-ipc", "limited")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def plane() -> Iterator[HostilePlane]:
    support.need_network()
    with open_directory() as directory, hostile_plane(this_user(), directory) as running:
        install(running.server.admin)
        yield running


@pytest.fixture(scope="module")
def verdicts(plane: HostilePlane) -> dict[str, Verdicts]:
    return run_contexts(plane.server.admin, CONTEXTS, PLANE_IMAGE, plane.targets)


def test_no_case_is_allowed_that_a_real_node_refuses(verdicts: dict[str, Verdicts]) -> None:
    declared = DIFFERENCES if os.geteuid() == 0 else (*DIFFERENCES, *ORDINARY_USER)
    assert laxer(comparable(recorded()), verdicts, declared) == {}


def test_every_difference_from_a_real_node_is_declared(verdicts: dict[str, Verdicts]) -> None:
    if os.geteuid() != 0 or not is_same_kernel(recorded()):
        pytest.skip("the errors of other kernels and of ordinary users differ")
    assert differences(recorded()["verdicts"], verdicts, DIFFERENCES) == {}


def test_hostile_pod_specs_get_the_verdicts_of_a_real_node(plane: HostilePlane) -> None:
    verdicts = run_pod_cases(plane.server.admin, POD_CASES, PLANE_IMAGE, plane.targets)
    different = {
        name: (verdict, verdicts[name])
        for name, verdict in recorded()["pods"].items()
        if verdict != verdicts[name]
        and not (
            verdicts[name] in ("refused", "absent")
            and any(fnmatch.fnmatchcase(name, pattern) for pattern in POD_DIFFERENCES)
        )
    }
    assert different == {}


def run_one(plane: HostilePlane, name: str, context: SecurityCase, **container: Any) -> Verdicts:
    """One more context; `container` overrides fields of its container."""
    pod = hostile_pod(name, replace(context, container=container), PLANE_IMAGE, plane.targets)
    create_pod(plane.server.admin, pod)
    return collect(plane.server.admin, f"hostile-{name}")


def test_a_pod_that_asks_for_no_seccomp_profile_gets_the_default_one(
    plane: HostilePlane, verdicts: dict[str, Verdicts]
) -> None:
    cases = ("syscalls", "sweep", "capability.status", "ipc.key")
    unasked = run_one(plane, "unasked", SecurityCase(pod_security={}, cases=cases))
    assert unasked == {case: verdicts["default"][case] for case in unasked}


def test_a_container_cannot_change_the_program_of_its_runtime(plane: HostilePlane) -> None:
    """The command /proc/self/exe is the program of the process that becomes the container."""
    environment = {"PYTHONHOME": sys.base_prefix, "LD_LIBRARY_PATH": f"{sys.base_prefix}/lib"}
    context = SecurityCase(env=environment)
    command = ["/proc/self/exe", "-S", "-B", "-m", "tests.security.hostile", "inheritance.program_of_the_runtime"]
    verdict = run_one(plane, "runtime-program", context, command=command)
    assert verdict == {"inheritance.program_of_the_runtime": "absent"}


def test_a_privileged_pod_cannot_write_the_programs_of_the_machine(plane: HostilePlane) -> None:
    context = SecurityCase({"privileged": True}, {}, cases=("machine.",), env=OWN_MOUNTS)
    assert run_one(plane, "programs", context) == {"machine.programs_written_after_a_remount": []}


def test_a_loaded_image_is_confined_like_a_mapped_one(plane: HostilePlane, tmp_path: Path) -> None:
    tree, archive = tmp_path / "tree", tmp_path / "image.tar"
    real_node.install_image(tree)
    pack(tree, {real_node.IMAGE: []}, archive, env={})
    loaded = yard("image", "load", str(archive), state=plane.state, timeout=120)
    assert loaded.returncode == 0, loaded.stderr
    contexts = {name: CONTEXTS[name] for name in ("default", "restricted", "read-only", "privileged")}
    verdicts = run_contexts(plane.server.admin, contexts, real_node.IMAGE, plane.targets)
    declared = DIFFERENCES if os.geteuid() == 0 else (*DIFFERENCES, *ORDINARY_USER)
    assert laxer(comparable(recorded()), verdicts, declared) == {}


def test_a_plane_of_an_ordinary_user_is_never_laxer_than_a_real_node() -> None:
    if os.geteuid() != 0:
        pytest.skip("this whole run is an ordinary user's")
    support.need_network()
    contexts = {name: CONTEXTS[name] for name in ORDINARY}
    with (
        open_directory() as directory,
        ordinary_user(directory) as user,
        hostile_plane(user, directory) as running,
    ):
        install(running.server.admin)
        verdicts = run_contexts(running.server.admin, contexts, PLANE_IMAGE, running.targets)
    assert laxer(comparable(recorded()), verdicts, (*DIFFERENCES, *ORDINARY_USER)) == {}


def test_what_is_declared_as_a_difference_is_stricter() -> None:
    """The comparison itself: a verdict that allows more is never an accepted difference."""
    assert is_laxer("mount.bind", "denied:EPERM", "allowed")
    assert not is_laxer("mount.bind", "allowed", "denied:EPERM")
    assert is_laxer("device.entries", ["null"], ["kvm", "null"])
    assert is_laxer("capability.status:CapEff", "00000000a80425fb", "00000000a82425fb")
    assert is_laxer("capability.status:Seccomp", "2", "0")
    assert is_laxer("namespace.of:ipc", "its own", "the machine's")


@pytest.mark.cluster
def test_the_recorded_verdicts_match_a_real_node() -> None:
    if not FULL:
        pytest.skip("runs with TORCHYARD_TESTS=full")
    real_node.need()
    with open_directory() as directory:
        pods, verdicts = run_on_real_node(directory)
    if os.environ.get("TORCHYARD_RECORD"):
        write_record({"versions": real_node.versions(), "pods": pods, "verdicts": verdicts})
    assert (pods, differences(recorded()["verdicts"], verdicts, UNSTABLE)) == (recorded()["pods"], {})


def run_on_real_node(directory: Path) -> tuple[dict[str, str], dict[str, Verdicts]]:
    user = this_user()
    with machine_targets(user, directory) as targets, real_node.real_node(directory) as server:
        install(server.admin)
        names = {**targets, "RUNTIME_STATE": str(directory / "cluster"), "RUNTIME_PROGRAM": "0:0"}
        pods = run_pod_cases(server.admin, POD_CASES, real_node.IMAGE, names)
        return pods, run_contexts(server.admin, CONTEXTS, real_node.IMAGE, names)
