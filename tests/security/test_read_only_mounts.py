"""What is mounted read-only stays so: with everything mounted below it, and for a container that may remount."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.node import support
from tests.security.sandbox_support import output_of

from torchyard.node.runtime.rootfs_steps import Mount


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[support.ShimHarness]:
    support.need_sandbox()
    (tmp_path / "node").mkdir()
    async with support.shim_harness(tmp_path / "node") as harness:
        yield harness


async def test_a_mount_below_a_read_only_one_is_read_only(harness: support.ShimHarness, tmp_path: Path) -> None:
    (tmp_path / "top" / "below").mkdir(parents=True)
    pod = await harness.pod("p", tmpfs=[{"path": str(tmp_path / "top" / "below"), "size": 0}])
    mounts = [Mount(tmp_path / "top", "/top", read_only=True)]
    script = "for d in /top /top/below; do touch $d/x 2>/dev/null && echo wrote $d; done; stat -f -c %T /top/below"
    assert await output_of(harness, script, pod=pod, mounts=mounts) == "tmpfs"


RECURSION = """
import os, sys
sys.path.insert(0, sys.argv[1])
from torchyard.node.shim import linux
if sys.argv[3] == "old kernel":
    linux._SYSCALL.pop("mount_setattr", None)
uid, gid = os.getuid(), os.getgid()
linux.unshare(linux.NEWUSER | linux.NEWNS)
linux._write_maps(os.getpid(), {"setgroups": "deny", "uid_map": f"0 {uid} 1", "gid_map": f"0 {gid} 1"})
linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
top = sys.argv[2]
linux.mount("tmpfs", top, "tmpfs")
os.makedirs(f"{top}/with space/deep")
linux.mount("tmpfs", f"{top}/with space", "tmpfs", flags=linux.MS_NOEXEC)
os.makedirs(f"{top}/with space/deep")
linux.mount("tmpfs", f"{top}/with space/deep", "tmpfs")
linux.make_read_only(top)
for path in (top, f"{top}/with space", f"{top}/with space/deep"):
    try:
        open(f"{path}/x", "w").close()
        print("wrote", path)
    except OSError as error:
        assert error.errno == 30, error
"""


@pytest.mark.parametrize("kernel", ["this kernel", "old kernel"])
def test_every_mount_below_is_made_read_only_also_without_mount_setattr(tmp_path: Path, kernel: str) -> None:
    support.need_sandbox()
    source = Path(__file__).parents[2] / "src"
    run = subprocess.run(
        [sys.executable, "-c", RECURSION, str(source), str(tmp_path), kernel],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stderr


REMOUNT = """
for path in /usr /etc/passwd %(prefix)s /etc/ssl; do
    mount -o remount,rw,bind $path; mount -o remount,rw $path
done 2>/dev/null
touch /usr/torchyard-test %(prefix)s/torchyard-test 2>/dev/null && echo wrote
(echo torchyard-test >> /etc/passwd) 2>/dev/null
true"""


@pytest.mark.parametrize("more", [{"privileged": True}, {"capabilities": [*support.CAPABILITIES, 21]}])
async def test_a_container_that_may_remount_cannot_write_the_machines_files(
    harness: support.ShimHarness, more: dict[str, Any]
) -> None:
    prefix = Path(sys.prefix)
    before = Path("/etc/passwd").read_bytes()
    try:
        lines = (await output_of(harness, REMOUNT % {"prefix": prefix}, **more)).splitlines()
        assert "wrote" not in lines
        assert Path("/etc/passwd").read_bytes() == before
        assert not any((path / "torchyard-test").exists() for path in (Path("/usr"), prefix))
    finally:
        for path in (Path("/usr"), prefix):
            (path / "torchyard-test").unlink(missing_ok=True)
        if os.access("/etc/passwd", os.W_OK) and Path("/etc/passwd").read_bytes() != before:
            Path("/etc/passwd").write_bytes(before)


async def test_a_privileged_container_has_the_machines_programs(harness: support.ShimHarness) -> None:
    """Through overlays without a writable layer: they run, and volumes can be mounted below them."""
    data = harness.root / "data"
    data.mkdir()
    mounts = [Mount(data, "/usr/share/torchyard-new/below")]
    script = f"{sys.executable} -c 'print(6 * 7)'; touch /usr/share/torchyard-new/below/x && echo wrote; id -un"
    lines = (await output_of(harness, script, privileged=True, mounts=mounts)).splitlines()
    assert lines == ["42", "wrote", "root"]
