"""NFS shares: mounted into a pod's directory by the machine's programs, and taken out before it is removed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from torchyard.api.errors import YardError


class MountError(YardError):
    """What the mount program said, or what it lacks."""

    code = "FailedMount"
    temporary = True


async def mount(share: str, path: Path, options: Iterable[str]) -> None:
    """Mount `server:/path` there, unless that was done before."""
    path.mkdir(parents=True, exist_ok=True)
    if _is_mounted(path):
        return
    program = shutil.which("mount.nfs")
    if os.geteuid() != 0 or program is None:
        raise MountError(
            f"nfs share {share} needs root and mount.nfs on this machine",
            hint="install nfs-common and run the node as root, or mount it yourself and use hostPath",
        )
    chosen = ",".join(options)
    failed = await _run(program, share, str(path), *(("-o", chosen) if chosen else ()))
    if failed:
        raise MountError(f"mount of {share} failed: {failed}")


async def unmount_all(directory: Path) -> None:
    """Whatever is mounted in the directory; raises if something stays, since what is removed below it would be lost."""
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if _is_mounted(path):
            failed = await _run("umount", str(path))
            if _is_mounted(path):
                raise MountError(f"{path} cannot be unmounted: {failed}")


def _is_mounted(path: Path) -> bool:
    """By the kernel's own list: a mount of the same file system elsewhere looks like any directory."""
    place = (
        str(path.resolve()).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011").replace("\n", "\\012")
    )
    return any(line.split(" ")[4] == place for line in Path("/proc/self/mountinfo").read_text().splitlines())


async def _run(*command: str) -> str:
    """What the program said when it failed; nothing when it did not."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return (said.decode(errors="replace").strip() or f"exit code {process.returncode}") if process.returncode else ""
