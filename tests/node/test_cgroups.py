(
    """Limits by cgroups: detected where this user may create them, written for each version, removed with the pod."""
    """Limits by cgroups: detected where this user may create them, written for each version, removed with the pod."""
)

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.node import support
from tests.node.conftest import RunningNode

from torchyard.api.gvr import PODS
from torchyard.node.resources import cgroups
from torchyard.node.shim.memory import OomCounter

UID = "0-1-2"


@pytest.fixture
def delegated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that looks like a version 2 group which this user was given."""
    for name, text in (
        ("cgroup.controllers", "cpu io memory pids\n"),
        ("cgroup.procs", ""),
        ("cgroup.subtree_control", ""),
    ):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cgroups, "_own_cgroup", lambda root: root)
    return tmp_path


def group_of(limits: cgroups.CgroupSupport, *files: str) -> Path:
    """A container's group with the files that the kernel would put there."""
    group = limits.parents[0] / f"torchyard-{UID}-main"
    group.mkdir()
    for name in files:
        (group / name).write_text("")
    return group


def test_a_delegated_cgroup_v2_is_found_and_delegates_its_controllers(delegated: Path) -> None:
    (delegated / "cgroup.procs").write_text("41\n")
    limits = cgroups.find(delegated)
    assert (limits.version, limits.parents) == (2, (delegated,))
    cgroups.prepare(limits)
    # only leaves may have processes: those of the parent are moved into one first
    assert (delegated / "torchyard-agent" / "cgroup.procs").read_text() == "41"
    assert (delegated / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


@pytest.mark.parametrize("controllers", ["", "cpu io pids"])
def test_without_a_memory_controller_limits_are_not_enforced_and_the_description_says_why(
    delegated: Path, controllers: str
) -> None:
    (delegated / "cgroup.controllers").write_text(controllers)
    limits = cgroups.find(delegated)
    assert not limits.enforced
    assert "Delegate=yes" in limits.description


def test_cgroup_v2_files_get_memory_and_cpu_limits(delegated: Path) -> None:
    limits = cgroups.find(delegated)
    group = group_of(limits, "memory.max", "memory.swap.max", "memory.oom.group", "cpu.max")
    assert cgroups.create(limits, UID, "main", memory=64 << 20, cpu_milli=1500) == [group]
    files = {path.name: path.read_text() for path in group.iterdir()}
    assert files == {
        "memory.max": "67108864",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
    }


@pytest.mark.parametrize("version", [1, 2])
def test_limits_larger_than_any_machine_are_written_as_the_largest_that_the_kernel_takes(
    tmp_path: Path, version: int
) -> None:
    limits = cgroups.CgroupSupport(version, (tmp_path,), "test")
    files = ("memory.limit_in_bytes", "cpu.cfs_quota_us") if version == 1 else ("memory.max", "cpu.max")
    group = group_of(limits, *files)
    cgroups.create(limits, UID, "main", memory=2**63 - 1, cpu_milli=9_200_000_000_000_000_000)
    memory, quota = (int((group / file).read_text().split()[0]) for file in files)
    assert memory % (64 << 10) == 0  # the largest page
    assert 2**62 < memory < 2**63
    assert quota == 2**44 - 1  # the kernel's MAX_BW
    cgroups.create(limits, UID, "main", memory=1 << 40, cpu_milli=10_000_000)
    assert [int((group / file).read_text().split()[0]) for file in files] == [1 << 40, 1_000_000_000]


@pytest.mark.parametrize("name", ["memory.events", "memory.oom_control"])
def test_oom_kills_are_counted_in_both_cgroup_versions(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("low 0\noom_kill 3\n")
    groups = OomCounter([str(tmp_path)])
    assert not groups.increased()
    (tmp_path / name).write_text("low 0\noom_kill 4\n")
    assert groups.increased()


async def test_cgroups_are_removed_with_their_pod(node: RunningNode) -> None:
    limits = support.machine().cgroups
    if not limits.enforced:
        pytest.skip(limits.description)
    container = {"resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}}
    await node.script("p", "sleep 60", container=container)
    pod = await node.phase("p", "Running")

    def groups() -> list[Path]:
        return [path for parent in limits.parents for path in parent.glob(f"torchyard-{pod['metadata']['uid']}-*")]

    assert all((group / "cgroup.procs").read_text() for group in groups())
    assert len(groups()) == len(limits.parents)
    await node.client.delete(PODS, "p", "default")
    for _ in range(1500):
        if not groups():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"left behind: {groups()}")
