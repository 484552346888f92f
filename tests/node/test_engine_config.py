"""The options that a container's fields become for podman and docker."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from torchyard.api.objects import Object
from torchyard.node.images.model import Image, ImageConfig
from torchyard.node.pod import create_container
from torchyard.node.pod.container_config import ContainerOptions, build_config
from torchyard.node.pod.engine_config import engine_config
from torchyard.node.pod.pod_dir import PodDir
from torchyard.node.resources.cgroups import MAX_MEMORY
from torchyard.node.runtime.rootfs_steps import RootfsSource
from torchyard.node.settings import NodeSettings


def options_of(tmp_path: Path, spec: Object, container: Object) -> list[str]:
    """The engine's command line for a container of a pod."""
    main = {"name": "main", "image": "example:1", **container}
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": [main], **spec}}
    pod_dir = PodDir(tmp_path / "pods" / "u")
    pod_dir.etc.mkdir(parents=True)
    image = Image("example:1", "sha256:0", RootfsSource(machine=False), ImageConfig(), engine=True)
    options = ContainerOptions(
        pod, main, 0, image, env={}, volumes={}, pod_dir=pod_dir, settings=NodeSettings(tmp_path), sandboxed=False
    )
    config = engine_config(build_config(options), options, engine="podman", name="c")
    assert config["user"] == {"uid": 0, "gid": 0, "groups": []}
    return config["argv"]


def pairs(argv: list[str]) -> set[tuple[str, str]]:
    return set(itertools.pairwise(argv))


def test_security_fields_become_options(tmp_path: Path) -> None:
    security = {
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "Unconfined"},
    }
    spec = {"securityContext": {"runAsUser": 7, "runAsGroup": 8, "supplementalGroups": [9]}}
    argv = options_of(tmp_path, spec, {"securityContext": security, "tty": True, "stdin": True})
    expected = {
        ("--cap-drop", "ALL"), ("--cap-add", "NET_ADMIN"), ("--user", "7:8"), ("--group-add", "9"),
        ("--security-opt", "no-new-privileges"), ("--security-opt", "seccomp=unconfined"),
    }  # fmt: skip
    assert expected <= pairs(argv)
    assert {"--read-only", "--tty", "--interactive"} <= set(argv)
    assert "--privileged" not in argv


def test_namespaces_limits_and_names_become_options(tmp_path: Path) -> None:
    spec = {"hostPID": True, "hostIPC": True, "hostname": "other"}
    limits = {"resources": {"limits": {"memory": "1Gi", "cpu": "1500m"}}}
    argv = options_of(tmp_path, spec, {**limits, "securityContext": {"privileged": True}})
    expected = {
        ("--pid", "host"), ("--ipc", "host"), ("--hostname", "other"), ("--memory", str(1 << 30)), ("--cpus", "1.5"),
        ("--network", "host"),
    }  # fmt: skip
    assert expected <= pairs(argv)
    assert "--privileged" in argv
    assert not {"--security-opt", "--read-only", "--user"} & set(argv)


def test_a_memory_limit_larger_than_any_machine_fits_into_64_bits(tmp_path: Path) -> None:
    argv = options_of(tmp_path, {}, {"resources": {"limits": {"memory": "1e30"}}})
    assert ("--memory", str(MAX_MEMORY)) in pairs(argv)
    assert MAX_MEMORY < 2**63


@pytest.mark.parametrize(("limit", "threads"), [("100m", 1), ("1", 1), ("9.2e15", os.cpu_count() or 1)])
def test_a_container_has_no_more_threads_than_the_machine_has_cpus(limit: str, threads: int) -> None:
    container = {"resources": {"limits": {"cpu": limit}}}
    assert create_container._threads(container) == {"OMP_NUM_THREADS": str(threads)}
