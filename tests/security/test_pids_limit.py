"""The number of processes of a pod is limited, whatever the number of its containers."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from pathlib import Path

import pytest
from tests.node import support
from tests.security.sandbox_support import python_output

from torchyard.node.resources import cgroups
from torchyard.node.shim import pids, records

LIMIT = 60
COUNT = """
import signal
count = 0
try:
    while count < 300:
        if os.fork() == 0:
            signal.pause()
        count += 1
except BlockingIOError:
    pass
print(json.dumps(count), flush=True)
os._exit(0)
"""


async def test_a_pod_cannot_have_more_processes_than_its_limit(tmp_path: Path) -> None:
    support.need_sandbox()
    limit = cgroups.pids_limit(support.machine().cgroups, LIMIT)
    if limit is None:
        pytest.skip("no pids cgroup on this machine")
    (tmp_path / "node").mkdir()
    async with support.shim_harness(tmp_path / "node", pids=limit) as harness:
        pod = await harness.pod("p")
        started = await python_output(harness, COUNT, pod=pod)
        assert LIMIT - 10 < started < LIMIT
        # the first container's processes are gone, and both containers together have the limit
        assert LIMIT - 10 < await python_output(harness, COUNT, pod=pod, name="second") < LIMIT
        other = await python_output(harness, COUNT)
        assert LIMIT - 10 < other < LIMIT, "each pod has its own"
        shim = records.shim_pid(str(pod.pod))
        assert shim
        group = Path(pids.group_of(limit["parent"], shim))
        assert group.is_dir()
    for _ in range(6000):
        pids.remove_unused(limit["parent"])
        if not group.exists():
            break
        await asyncio.sleep(0.01)
    assert not group.exists(), "the group of a shim that has ended is removed"


def test_version_2_puts_the_shim_into_a_leaf_of_the_pods_group(tmp_path: Path) -> None:
    group = Path(pids.group_of(str(tmp_path), os.getpid()))
    (group / "shim").mkdir(parents=True)
    files = [group / "pids.max", group / "cgroup.subtree_control", group / "shim" / "cgroup.procs"]
    for file in files:
        file.touch()
    pids.join({"parent": str(tmp_path), "limit": 7, "delegate": "+memory +pids"})
    assert [file.read_text() for file in files] == ["7", "+memory +pids", "0"]


def test_version_1_moves_the_only_thread(tmp_path: Path) -> None:
    """A move of the process would stop every fork of the machine for a while."""
    group = Path(pids.group_of(str(tmp_path), os.getpid()))
    group.mkdir()
    files = [group / "pids.max", group / "tasks", group / "cgroup.procs"]
    for file in files:
        file.touch()
    pids.join({"parent": str(tmp_path), "limit": 7, "delegate": ""})
    assert [file.read_text() for file in files] == ["7", "0", ""]


def test_without_a_limit_there_is_no_group(tmp_path: Path) -> None:
    support_v1 = cgroups.CgroupSupport(1, (tmp_path,), "", tmp_path)
    assert cgroups.pids_limit(support_v1, -1) is None
    assert cgroups.pids_limit(cgroups.CgroupSupport(0, (), ""), 100) is None


def test_version_2_delegates_to_the_containers_groups_below_the_pods(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    support_v2 = cgroups.CgroupSupport(2, (tmp_path,), "", tmp_path)
    limit = cgroups.pids_limit(support_v2, 7)
    assert limit == {"parent": str(tmp_path), "limit": 7, "delegate": "+cpu +memory +pids"}
    pod = Path(pids.group_of(str(tmp_path), 42))
    pod.mkdir()
    groups = cgroups.create(support_v2, "u", "main", memory=None, cpu_milli=None, shim_pid=42)
    assert groups == [pod / "torchyard-u-main"]
    cgroups.remove(support_v2, "u", "main", shim_pid=42)
    cgroups.remove_pod(support_v2, 42)
    assert not pod.exists()


def test_the_default_limit_grows_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    for cpus in (2, 128):
        monkeypatch.setattr(os, "cpu_count", lambda cpus=cpus: cpus)
        limits.append(cgroups.default_pids_limit())
    assert limits == [1280, 17408]


def test_a_machine_without_a_pids_cgroup_says_so() -> None:
    features = dataclasses.replace(support.machine(), cgroups=cgroups.CgroupSupport(0, (), "none"))
    assert features.labels()["torchyard.dev/pids-limit"] == "none"
    assert [available for name, available, _ in features.lines() if name == "process limit"] == [False]
