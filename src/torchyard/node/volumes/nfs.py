"""NFS shares: mounted into a pod's directory by the machine's programs, and unmounted before it is removed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.api.pod.kubelet_messages import REASON_FAILED_MOUNT
from torchyard.api.volume import mount_messages as messages


class MountError(YardError):
    """The mount program failed or is missing."""

    code = REASON_FAILED_MOUNT
    temporary = True


async def mount(share: str, path: Path, options: Iterable[str]) -> None:
    """Mount `server:/path` there, unless it is mounted already."""
    path.mkdir(parents=True, exist_ok=True)
    if _is_mounted(path):
        return
    if share.startswith("-"):  # an option of the mount program
        raise MountError(messages.nfs_failed(share, "the server is not a host name"))
    program = shutil.which("mount.nfs")
    if os.geteuid() != 0 or program is None:
        raise MountError(messages.nfs_unsupported(share), hint=messages.NFS_UNSUPPORTED_HINT)
    joined = ",".join(options)
    problem = await _run(program, share, str(path), *(("-o", joined) if joined else ()))
    if problem:
        raise MountError(messages.nfs_failed(share, problem))


async def unmount_all(directory: Path) -> None:
    """Unmount everything in the directory. Raises if something stays: removing the directory would remove its files."""
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if _is_mounted(path):
            problem = await _run("umount", str(path))
            if _is_mounted(path):
                raise MountError(messages.unmount_failed(path, problem))


def _is_mounted(path: Path) -> bool:
    """By the kernel's own list: a bind mount of the same file system looks like any directory."""
    mount_point = (
        str(path.resolve()).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011").replace("\n", "\\012")
    )
    return any(line.split(" ")[4] == mount_point for line in Path("/proc/self/mountinfo").read_text().splitlines())


async def _run(*command: str) -> str:
    """The output of a program that failed; empty when it succeeded."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return (output.decode(errors="replace").strip() or f"exit code {process.returncode}") if process.returncode else ""
