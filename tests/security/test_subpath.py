"""Volumes that other pods change while a pod starts: nothing outside a volume is ever mounted, created or removed."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.node import support
from tests.node.conftest import RunningNode, running_node
from tests.security.exchange import exchanging

from torchyard.api.gvr import CONFIG_MAPS
from torchyard.api.objects import Object

REFUSED = 'failed to prepare subPath for volumeMount "v" of container "main"'


pytestmark = pytest.mark.asyncio(loop_scope="module")
_numbers = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningNode]:
    """One node for all tests of this module."""
    support.need_sandbox()
    async with running_node(tmp_path_factory.mktemp("paths") / "state") as running:
        yield running


@pytest.fixture
def name() -> str:
    """The name of a new pod."""
    return f"pod-{next(_numbers)}"


@pytest.fixture
def names() -> list[str]:
    return [f"pod-{next(_numbers)}" for _ in range(16)]


def host_path(path: Path, **source: str) -> Object:
    return {"volumes": [{"name": "v", "hostPath": {"path": str(path), **source}}]}


def mounted(**mount: Any) -> Object:
    return {"volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}


def waiting(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return (statuses[0].get("state") or {}).get("waiting") or {}


def has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or bool(
        waiting(pod).get("reason") not in (None, "ContainerCreating", "PodInitializing")
    )


async def test_a_sub_path_that_another_pod_exchanges_never_leads_out_of_the_volume(
    node: RunningNode, names: list[str], tmp_path: Path
) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for directory in (volume / "dir", outside):
        directory.mkdir(parents=True)
    (outside / "secret").write_text("the secret")
    (volume / "link").symlink_to(outside)
    script = "cat /v/secret 2>/dev/null; touch /v/written; echo ended"
    with exchanging(volume / "dir", volume / "link"):
        for name in names:
            await node.script(name, script, container=mounted(subPath="dir"), **host_path(volume))
        pods = [await node.until(name, has_ended) for name in names]
    refused = [pod for pod in pods if waiting(pod)]
    for pod in refused:
        assert waiting(pod) == {"reason": "CreateContainerConfigError", "message": REFUSED}
    assert len(refused) < len(names), "none was started"
    for pod in pods:
        if not waiting(pod):
            assert await node.log(pod["metadata"]["name"]) == "ended\n"
    assert os.listdir(outside) == ["secret"]


@pytest.mark.parametrize(
    ("link", "sub_path"),
    [("/etc", "link"), ("../outside", "link"), ("../outside", "link/new/deep"), ("/proc/self/root", "link/etc")],
)
async def test_a_sub_path_that_leads_out_is_refused_and_tried_again(
    node: RunningNode, name: str, tmp_path: Path, link: str, sub_path: str
) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for directory in (volume, outside):
        directory.mkdir()
    (volume / "link").symlink_to(link)
    await node.script(name, "echo started", container=mounted(subPath=sub_path), **host_path(volume))
    pod = await node.until(name, waiting)
    assert waiting(await node.until(name, has_ended)) == {"reason": "CreateContainerConfigError", "message": REFUSED}
    assert (await node.messages(name))["Failed"] == f"Error: {REFUSED}"
    (volume / "link").unlink()
    pod = await node.phase(name, "Succeeded")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert os.listdir(outside) == []


async def test_a_sub_path_that_cannot_be_created_is_refused(node: RunningNode, name: str) -> None:
    await node.script(name, "true", container=mounted(subPath="new"), **host_path(Path("/proc/sys")))
    pod = await node.until(name, has_ended)
    message = 'failed to create subPath directory for volumeMount "v" of container "main"'
    assert waiting(pod) == {"reason": "CreateContainerConfigError", "message": message}


async def test_sub_paths_that_stay_in_their_volume_are_mounted(node: RunningNode, name: str, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "real").mkdir(parents=True)
    (volume / "real" / "file").write_text("in the volume\n")
    (volume / "inner").symlink_to("real")
    (volume / "absolute").symlink_to(volume / "real")
    volume.chmod(0o750)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"key": "of the map\n"}}
    await node.client.create(CONFIG_MAPS, config, "default")
    mounts = [
        {"name": "v", "mountPath": "/inner", "subPath": "inner"},
        {"name": "v", "mountPath": "/absolute", "subPath": "absolute"},
        {"name": "v", "mountPath": "/file", "subPath": "real/file"},
        {"name": "v", "mountPath": "/new", "subPathExpr": "$(NAME)/deep"},
        {"name": "m", "mountPath": "/memory", "subPath": "a/b"},
        {"name": "c", "mountPath": "/key", "subPath": "key"},
    ]
    volumes = [
        *host_path(volume)["volumes"],
        {"name": "m", "emptyDir": {"medium": "Memory"}},
        {"name": "c", "configMap": {"name": "cm"}},
    ]
    container = {"volumeMounts": mounts, "env": [{"name": "NAME", "value": "expanded"}]}
    script = "cat /inner/file /absolute/file /file /key; touch /new/x /memory/x && stat -c %a /new"
    await node.script(name, script, container=container, volumes=volumes)
    await node.phase(name, "Succeeded")
    assert await node.log(name) == "in the volume\n" * 3 + "of the map\n750\n"
    assert (volume / "expanded" / "deep" / "x").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("../up", "unable to provision SubPath `../up`: must not contain '..'"),
        ("/etc", "error SubPath `/etc` must not be an absolute path"),
    ],
)
async def test_an_expanded_sub_path_is_checked_as_a_written_one(
    node: RunningNode, name: str, tmp_path: Path, value: str, message: str
) -> None:
    container = {**mounted(subPathExpr="$(PLACE)"), "env": [{"name": "PLACE", "value": value}]}
    await node.script(name, "true", container=container, **host_path(tmp_path / "volume"))
    pod = await node.until(name, has_ended)
    assert waiting(pod) == {"reason": "CreateContainerConfigError", "message": message}


async def test_a_host_path_that_is_exchanged_never_shows_the_state_of_the_plane(
    node: RunningNode, names: list[str], tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    (shared / "dir").mkdir(parents=True)
    (shared / "link").symlink_to(node.plane.settings.state / "pki")
    script = "cat /v/*.key 2>/dev/null; touch /v/written; ls /v"
    with exchanging(shared / "dir", shared / "link"):
        for name in names:
            await node.script(name, script, container=mounted(), **host_path(shared / "dir", type="Directory"))
        await asyncio.gather(*(node.until(name, has_ended_or_refused(node, name)) for name in names))
        for name in names:
            log = await logged(node, name)
            assert log in ("", "written\n"), log
    assert not (node.plane.settings.state / "pki" / "written").exists()


def has_ended_or_refused(node: RunningNode, name: str) -> Any:
    """A pod whose volume was refused when it was mounted stays in ContainerCreating and gets an event."""
    checks = iter(range(10_000))
    return lambda pod: has_ended(pod) or next(checks) > 100


async def logged(node: RunningNode, name: str) -> str:
    pod = await node.get(name)
    assert pod
    return await node.log(name) if (pod.get("status") or {}).get("phase") == "Succeeded" else ""


async def test_a_mount_path_that_another_pod_exchanges_stays_in_the_container(
    node: RunningNode, names: list[str], tmp_path: Path
) -> None:
    """A second volume is mounted below the first one, where a directory and a link to the machine are exchanged."""
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for directory in (volume / "dir", outside):
        directory.mkdir(parents=True)
    (volume / "link").symlink_to(outside)
    volumes = [*host_path(volume)["volumes"], {"name": "own", "emptyDir": {}}]
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "own", "mountPath": "/v/dir/new/deep"}]
    with exchanging(volume / "dir", volume / "link"):
        for name in names:
            await node.script(name, "true", container={"volumeMounts": mounts}, volumes=volumes)
        for name in names:
            await node.until(name, has_ended)
    assert os.listdir(outside) == []


@pytest.mark.parametrize("kind", ["", "DirectoryOrCreate", "FileOrCreate"])
async def test_a_host_path_is_not_created_in_the_state_of_the_plane(
    node: RunningNode, name: str, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "link").symlink_to(node.plane.settings.state / "pki")
    await node.script(name, "true", container=mounted(), **host_path(tmp_path / "link" / "new", type=kind))
    for _ in range(1200):
        if "FailedMount" in await node.events(name):
            break
        await asyncio.sleep(0.05)
    assert "holds the node's own state" in (await node.messages(name))["FailedMount"]
    assert not (node.plane.settings.state / "pki" / "new").exists()


async def test_a_volume_over_the_place_of_the_machines_root_does_not_lead_there(
    node: RunningNode, name: str, tmp_path: Path
) -> None:
    volume, secret = tmp_path / "volume", tmp_path / "secret"
    volume.mkdir()
    secret.write_text("the machine's own")
    (volume / "machine").symlink_to("/")
    script = f'test "$(ls -A /dev/pts)" = machine && ! cat /dev/pts/machine{secret}'
    await node.script(name, script, container=mounted(mountPath="/dev/pts"), **host_path(volume))
    await node.phase(name, "Succeeded")


async def test_the_uid_of_an_owner_is_not_a_path(node: RunningNode, name: str, tmp_path: Path) -> None:
    """The directory of a job's shared memory was named by it, made writable for all, mounted, and removed."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / "file").write_text("precious")
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "none",
        "uid": f"../../..{victim}",
        "controller": True,
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox", "command": ["ls", "/dev/shm"]}],
    }
    created = await node.create(name, spec, ownerReferences=[owner])
    await node.gone(name)  # its owner does not exist
    assert node.plane.agent
    directory = node.plane.agent.context.settings.pods / created["metadata"]["uid"]
    for _ in range(1200):
        if not directory.exists():
            break
        await asyncio.sleep(0.05)
    assert victim.stat().st_mode & 0o7777 == 0o700
    assert (victim / "file").read_text() == "precious"


async def test_a_working_directory_is_not_a_file_that_the_shim_has_open(node: RunningNode, names: list[str]) -> None:
    for number, name in enumerate(names, 3):
        container = {"workingDir": f"/proc/self/fd/{number}"}
        await node.script(name, "pwd; ls -d ../../../../../../root/.. ../../../../etc/shadow", container=container)
    for name in names:
        pod = await node.until(name, has_ended)
        assert pod["status"]["phase"] == "Failed", await node.log(name)
