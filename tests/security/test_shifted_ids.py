"""Pods with ids of their own: user namespaces with idmapped mounts, on a plane of root."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import RunningNode, running_node

from torchyard.api.gvr import CONFIG_MAPS
from torchyard.api.objects import Object
from torchyard.node.runtime import idmapped_mounts
from torchyard.node.runtime.id_ranges import IdRangeAllocator, not_shifted_by_spec
from torchyard.node.shim import records, shifted_ids

FIRST, COUNT = 0x70000000, shifted_ids.COUNT


@pytest.fixture
async def shifting(tmp_path: Path) -> AsyncIterator[RunningNode]:
    need_root()
    async with running_node(tmp_path / "state") as node:
        agent = node.plane.agent
        assert agent
        if not agent.machine.shifted_ids:
            pytest.skip(f"ids are not shifted on this machine: {agent.machine.shifted_ids_missing}")
        yield node


def pod_dir(node: RunningNode, pod: Object) -> Path:
    assert node.plane.agent
    return node.plane.agent.context.settings.pods / str(pod["metadata"]["uid"])


def record_of(node: RunningNode, pod: Object) -> Any:
    return records.read_pod(str(pod_dir(node, pod)))


def main_process(node: RunningNode, pod: Object) -> Path:
    record = records.read_record(str(pod_dir(node, pod)), "main", 0)
    assert record
    return Path("/proc", str(record["pid"]))


def uids(process: Path) -> set[int]:
    line = next(line for line in (process / "status").read_text().splitlines() if line.startswith("Uid:"))
    return {int(word) for word in line.split()[1:]}


async def test_root_of_two_pods_is_two_users_of_the_machine(shifting: RunningNode) -> None:
    for name in ("a", "b"):
        await shifting.script(name, "exec sleep 100")
    pods = [await shifting.phase(name, "Running") for name in ("a", "b")]
    users = [uids(main_process(shifting, pod)) for pod in pods]
    assert users == [{record_of(shifting, pod)["ids"]} for pod in pods]
    assert users[0] != users[1]
    for pod, (user,) in zip(pods, users, strict=True):
        assert user >= FIRST
        assert (main_process(shifting, pod) / "uid_map").read_text().split() == ["0", str(user), str(COUNT)]
        assert (main_process(shifting, pod) / "gid_map").read_text().split() == ["0", str(user), str(COUNT)]


async def test_processes_of_another_pod_cannot_be_signalled_or_read(shifting: RunningNode) -> None:
    """Not even by root with the capabilities of a container that sees all processes of the machine."""
    await shifting.script("victim", "exec sleep 100")
    victim = main_process(shifting, await shifting.phase("victim", "Running")).name
    script = (
        f"kill -0 {victim} || echo no signal; cat /proc/{victim}/environ || echo no memory; ls /proc/{victim}/root/"
    )
    capabilities = {"capabilities": {"add": ["KILL", "SYS_PTRACE"]}}
    await shifting.script("p", f"({script}) 2>&1; true", hostPID=True, container={"securityContext": capabilities})
    await shifting.phase("p", "Succeeded")
    text = await shifting.log("p")
    assert "no signal" in text
    assert "no memory" in text
    assert text.count("ermi") == 3, text  # Operation not permitted, Permission denied


async def test_files_keep_the_owners_that_the_pod_sees(shifting: RunningNode, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "of-1000").write_text("x")
    os.chown(shared / "of-1000", 1000, 1001)
    await shifting.client.create(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"key": "value"}}, "default")
    volumes = [
        {"name": "host", "hostPath": {"path": str(shared)}},
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "config", "configMap": {"name": "settings"}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    mounts.append({"name": "memory", "mountPath": "/sub", "subPath": "below"})
    script = """
        stat -c '%n %u:%g' / /usr/bin/env /etc/hosts /host /host/of-1000 /disk /memory /sub
        stat -c '%n %u:%g' /config/key /dev/shm /dev/mqueue
        for directory in /host /disk /memory /root /dev/shm; do echo new > $directory/new; done
        chown 7:8 /host/new; stat -c '%n %u:%g' /host/new /disk/new /memory/new /root/new /dev/shm/new; id -u
        cat /config/key
    """
    container = {"volumeMounts": mounts}
    pod = await shifting.script("p", script, volumes=volumes, container=container)
    await shifting.phase("p", "Succeeded")
    lines = (await shifting.log("p")).split()
    owners = dict(zip(lines[0:-2:2], lines[1:-2:2], strict=False))
    assert owners.pop("/host/of-1000") == "1000:1001"
    assert owners.pop("/host/new") == "7:8"
    assert set(owners.values()) == {"0:0"}, owners
    assert lines[-2:] == ["0", "value"]
    status = (shared / "new").stat()
    assert (status.st_uid, status.st_gid) == (7, 8)
    written = list(pod_dir(shifting, pod).rglob("new"))
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in written} == {(0, 0)}
    assert len(written) == 2  # of the root and of the emptyDir on disk


async def test_pods_share_a_volume(shifting: RunningNode, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    volumes = [{"name": "v", "hostPath": {"path": str(shared)}}]
    container = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    await shifting.script("a", "umask 077; echo secret > /v/file", volumes=volumes, container=container)
    await shifting.phase("a", "Succeeded")
    await shifting.script("b", "cat /v/file; echo more >> /v/file", volumes=volumes, container=container)
    await shifting.phase("b", "Succeeded")
    assert await shifting.log("b") == "secret\n"
    assert (shared / "file").stat().st_uid == 0


async def test_users_and_groups_of_the_spec_are_those_of_the_pod(shifting: RunningNode) -> None:
    context = {"runAsUser": 1234, "runAsGroup": 2345, "fsGroup": 3456, "supplementalGroups": [4567]}
    volumes = [{"name": "v", "emptyDir": {}}]
    await shifting.script(
        "p",
        "id -u; id -g; id -G; touch /v/file; stat -c %u:%g /v/file; exec sleep 100",
        securityContext=context,
        volumes=volumes,
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
    )
    pod = await shifting.phase("p", "Running")
    for _ in range(6000):
        text = await shifting.log("p")
        if text.count("\n") == 4:
            break
        await asyncio.sleep(0.01)
    assert text.split("\n")[:4] == ["1234", "2345", "2345 3456 4567", "1234:3456"]
    assert uids(main_process(shifting, pod)) == {record_of(shifting, pod)["ids"] + 1234}


@pytest.mark.parametrize(
    "spec",
    [
        {"hostUsers": True},
        {"hostPID": True},
        {"hostIPC": True},
        {"securityContext": {"runAsUser": COUNT}},
        {"securityContext": {"fsGroup": COUNT}},
        {"securityContext": {"supplementalGroups": [COUNT]}},
        {"containers": [{"name": "main", "securityContext": {"privileged": True}}]},
        {"initContainers": [{"name": "main", "securityContext": {"privileged": True}}]},
        {"containers": [{"name": "main", "securityContext": {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}}]},
        {"containers": [{"name": "main", "securityContext": {"runAsGroup": COUNT}}]},
    ],
    ids=str,
)
def test_pods_that_keep_the_ids_of_the_machine(spec: Object) -> None:
    container = {"name": "main", "image": "busybox"}
    assert not_shifted_by_spec({"spec": {"containers": [container]}}) == ""
    assert not_shifted_by_spec({"spec": {"containers": [container], **spec}})


async def test_a_privileged_pod_and_one_that_asks_for_host_users_keep_the_ids(shifting: RunningNode) -> None:
    await shifting.script("a", "cat /proc/self/uid_map", hostUsers=True)
    await shifting.script("b", "cat /proc/self/uid_map", container={"securityContext": {"privileged": True}})
    for name in ("a", "b"):
        pod = await shifting.phase(name, "Succeeded")
        assert (await shifting.log(name)).split() == ["0", "0", "4294967295"]
        assert not record_of(shifting, pod).get("ids")


async def test_a_volume_that_cannot_be_mapped_keeps_the_pod_from_it(
    shifting: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    """A file system without support for idmapped mounts, and a directory of an id that no pod has."""
    caplog.set_level(logging.INFO, "torchyard.node.pod.sandbox")
    await shifting.script(
        "p",
        "cat /proc/self/uid_map",
        volumes=[{"name": "v", "hostPath": {"path": "/proc/sys/kernel"}}],
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
    )
    await shifting.phase("p", "Succeeded")
    assert (await shifting.log("p")).split() == ["0", "0", "4294967295"]
    assert [text for text in caplog.messages if "ids not shifted: pod=default/p reason='/proc/sys/kernel: " in text]


def need_root() -> None:
    problem = idmapped_mounts.missing()
    if problem:
        pytest.skip(f"ids are not shifted on this machine: {problem}")


def test_a_directory_of_an_id_that_no_pod_has_cannot_be_mapped(tmp_path: Path) -> None:
    need_root()
    probe = idmapped_mounts.MountProbe()
    try:
        assert probe.problem(tmp_path) == ""
        os.chown(tmp_path, COUNT, 0)
        assert str(tmp_path) in probe.problem(tmp_path)
        assert "Invalid argument" in probe.problem(Path("/proc"))
        assert probe.problem(tmp_path / "missing")
    finally:
        probe.close()


MIXED_TREE = """
import json, os, sys
from torchyard.node.runtime import idmapped_mounts
from torchyard.node.shim import linux
linux.unshare(linux.NEWNS)
linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
top = sys.argv[1]
for path, kind in ((top, "tmpfs"), (f"{top}/proc", "proc"), (f"{top}/below", "tmpfs")):
    os.makedirs(path, exist_ok=True)
    linux.mount(kind, path, kind)
probe = idmapped_mounts.MountProbe()
step = {"op": "bind", "source": top, "target": "/v", "read_only": True, "no_follow": True}
config = {"root_directory": os.path.dirname(top), "root": [step]}
mounts = idmapped_mounts.ContainerMounts(config, user_namespace=probe._user_namespace, in_memory=())
found = {}
for step in mounts.config["root"]:
    descriptor = mounts.files[step["file"]]
    read_only = bool(os.fstatvfs(descriptor).f_flag & os.ST_RDONLY)
    found[step["target"]] = [os.fstat(descriptor).st_uid, read_only]
print(json.dumps(found))
"""


def test_mounts_below_a_volume_are_mapped_one_by_one(tmp_path: Path) -> None:
    """One that cannot be mapped belongs to nobody in the pod, and does not change the others."""
    need_root()
    (tmp_path / "volume").mkdir()
    command = [sys.executable, "-c", MIXED_TREE, str(tmp_path / "volume")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    owners = json.loads(process.stdout)
    assert owners == {"/v": [FIRST, True], "/v/below": [FIRST, True], "/v/proc": [0, True]}


async def test_a_user_of_an_image_that_the_pod_does_not_have_is_an_error(
    shifting: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchyard.node.pod import container_config

    monkeypatch.setattr(container_config, "container_user", lambda *_: {"uid": COUNT, "gid": 0, "groups": [0]})
    await shifting.script("p", "true")
    pod = await shifting.until("p", waits)
    message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
    assert message == f"user or group {COUNT} is not among the 65536 ids of the pod: set hostUsers to true"


def waits(pod: Object) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return "message" in ((statuses[0].get("state") or {}).get("waiting") or {})


def write_record(pods: Path, name: str, **fields: object) -> None:
    (pods / name).mkdir(parents=True)
    records.write(records.pod_path(str(pods / name)), fields)


def test_a_range_is_never_given_to_two_pods(tmp_path: Path) -> None:
    write_record(tmp_path, "a", ids=IdRangeAllocator([]).allocate("x"))
    write_record(tmp_path, "b")
    allocator = IdRangeAllocator(tmp_path.iterdir())
    ranges = [allocator.allocate("x") for _ in range(200)]
    used = {IdRangeAllocator([]).allocate("x"), *ranges}
    assert len(used) == 201
    assert all(first % COUNT == 0 and FIRST <= first < 0x7FFE0000 for first in used)


def test_a_range_is_free_again_when_the_pod_is_removed() -> None:
    allocator: IdRangeAllocator = IdRangeAllocator([])
    take: Callable[[], int] = lambda: allocator.allocate("x")  # noqa: E731
    first = take()
    assert take() != first
    allocator.release({"ids": first})  # type: ignore[typeddict-item]
    assert take() == first


async def test_a_restarted_container_has_the_ids_of_its_pod(shifting: RunningNode) -> None:
    await shifting.script(
        "p",
        "test -e /v/x && exec sleep 100; touch /v/x",
        policy="Always",
        volumes=[{"name": "v", "emptyDir": {}}],
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
    )
    pod = await shifting.until("p", lambda pod: restarts(pod) == 1 and running(pod))
    record = records.read_record(str(pod_dir(shifting, pod)), "main", 1)
    assert record
    assert uids(Path("/proc", str(record["pid"]))) == {record_of(shifting, pod)["ids"]}


def restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))


def running(pod: Object) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return "running" in (statuses[0].get("state") or {})
