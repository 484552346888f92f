"""/proc and /sys of a container: what is the machine's cannot be written, and secrets of the kernel are covered."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.node import support
from tests.security.sandbox_support import output_of

from torchyard.node.runtime import rootfs_steps
from torchyard.node.runtime.rootfs_steps import MASKED_PATHS, READ_ONLY_PATHS, Mount
from torchyard.node.shim.client import ShimRequestError


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[support.ShimHarness]:
    support.need_sandbox()
    (tmp_path / "node").mkdir()
    async with support.shim_harness(tmp_path / "node") as harness:
        yield harness


SYSCTLS = ("kernel/core_pattern", "kernel/pid_max", "vm/overcommit_memory", "kernel/hostname", "fs/file-max")


@pytest.mark.parametrize("uid", [0, 1234])
async def test_a_pod_cannot_write_sysctls(harness: support.ShimHarness, uid: int) -> None:
    # each is written its own value, so that a sandbox that lets it through leaves the machine as it was
    script = "".join(
        f"v=$(cat /proc/sys/{name}) && echo $v > /proc/sys/{name} && echo wrote {name}\n" for name in SYSCTLS
    )
    lines = await output_of(harness, f"({script}) 2>/dev/null; true", user={"uid": uid, "gid": uid, "groups": []})
    assert lines == ""


async def test_the_read_only_paths_of_proc_are_read_only(harness: support.ShimHarness) -> None:
    script = (
        'for path in %s; do grep " $path ro," /proc/self/mountinfo >/dev/null || test ! -e $path || echo $path; done'
    )
    assert await output_of(harness, script % " ".join(READ_ONLY_PATHS)) == ""


async def test_masked_paths_are_empty(harness: support.ShimHarness) -> None:
    script = "for path in %s; do if test -d $path; then ls -A $path; elif test -e $path; then cat $path; fi; done"
    assert await output_of(harness, script % " ".join(MASKED_PATHS)) == ""


async def test_without_masks_the_paths_of_the_kernel_show(harness: support.ShimHarness) -> None:
    """procMount: Unmasked."""
    shown = await output_of(harness, "wc -l < /proc/interrupts", masked_paths=[], read_only_paths=[])
    assert int(shown) > 0


async def test_a_cover_cannot_be_removed_from_a_user_namespace_of_ones_own(harness: support.ShimHarness) -> None:
    """Without a seccomp filter a process may become root of a new user namespace: what it inherits there is locked."""
    script = (
        "unshare --user --map-root-user --mount sh -c '"
        "umount /proc/keys; umount -l /proc/sys; mount -o remount,bind,rw /proc/sys; mount -t proc proc /tmp; "
        "cat /proc/keys; test -e /tmp/keys && echo revealed; "
        "v=$(cat /proc/sys/vm/swappiness); echo $v > /proc/sys/vm/swappiness && echo wrote' 2>/dev/null; true"
    )
    assert await output_of(harness, script, seccomp="") == ""


async def test_the_whole_of_sys_is_read_only_with_the_machines_network(harness: support.ShimHarness) -> None:
    """The pods of this harness have no network of their own, as with hostNetwork: /sys is the machine's."""
    mounts = (await output_of(harness, "cut -d' ' -f5,6 /proc/self/mountinfo")).splitlines()
    options = {line.split()[0]: line.split()[1].split(",") for line in mounts}
    of_sys = {path: words for path, words in options.items() if path == "/sys" or path.startswith("/sys/")}
    assert "/sys" in of_sys
    assert {path for path, words in of_sys.items() if "ro" not in words} == set()


async def test_a_pod_cannot_lift_its_own_limits_through_sys(harness: support.ShimHarness) -> None:
    script = (
        "find /sys/fs/cgroup -maxdepth 3 "
        "\\( -name memory.limit_in_bytes -o -name memory.max -o -name pids.max -o -name cgroup.procs \\) "
        "| while read file; do (test -w $file && cat $file > $file) 2>/dev/null && echo wrote $file; done; "
        "mkdir /sys/fs/cgroup/memory/mine /sys/fs/cgroup/mine 2>/dev/null && echo created; true"
    )
    assert await output_of(harness, script) == ""


async def test_a_container_sees_its_own_cgroup_as_the_root(harness: support.ShimHarness) -> None:
    lines = (await output_of(harness, "cut -d: -f3 /proc/self/cgroup")).splitlines()
    assert set(lines) <= {"/"}


@pytest.mark.parametrize(
    ("sysctl", "config"),
    [
        ("net.ipv4.tcp_fin_timeout", {}),
        ("kernel.shm_rmid_forced", {"ipc": "NODE"}),
        ("kernel.core_uses_pid", {}),
        ("vm.swappiness", {}),
    ],
)
async def test_a_sysctl_of_the_machine_is_not_set_for_a_pod(
    harness: support.ShimHarness, sysctl: str, config: dict[str, Any]
) -> None:
    """Whatever the agent asks for. The value is the present one, so that a shim that writes it changes nothing."""
    value = Path("/proc/sys", *sysctl.split(".")).read_text().strip()
    with pytest.raises(ShimRequestError, match=f"sysctl {sysctl} is the machine's"):
        await harness.pod("p", sysctls={sysctl: value}, **config)


async def test_a_sysctl_of_the_pods_own_ipc_namespace_is_set(harness: support.ShimHarness) -> None:
    before = Path("/proc/sys/kernel/shm_rmid_forced").read_text().strip()
    other = "0" if before == "1" else "1"
    pod = await harness.pod("p", sysctls={"kernel.shm_rmid_forced": other})
    assert await output_of(harness, "cat /proc/sys/kernel/shm_rmid_forced", pod=pod) == other
    assert Path("/proc/sys/kernel/shm_rmid_forced").read_text().strip() == before


@pytest.mark.parametrize("target", ["/proc/sys", "/proc/self", "/link/keys", "/link"])
async def test_nothing_is_mounted_inside_proc(harness: support.ShimHarness, tmp_path: Path, target: str) -> None:
    """Not through a link of the image either."""
    (tmp_path / "volume").mkdir()
    pod = await harness.pod("p")
    root = pod.pod / "containers" / "main" / "0.root"
    root.mkdir(parents=True)
    os.symlink("/proc", root / "link")
    steps = rootfs_steps.rootfs_steps(
        rootfs_steps.RootfsSource(machine=True),
        [Mount(tmp_path / "volume", target)],
        scratch=tmp_path / "scratch",
        devices=[],
    )
    ended = await harness.run(pod, "main", ["true"], steps=steps)
    assert ended["exitCode"] != 0
    assert "cannot be mounted because it is inside /proc" in ended["message"]


@pytest.mark.parametrize("target", ["/proc", "//proc", "/x/../proc/", "/", "/sys", "/dev/."])
def test_the_pseudo_file_systems_themselves_are_reserved(target: str) -> None:
    assert rootfs_steps.is_reserved(target)
