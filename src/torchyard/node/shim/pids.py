"""The limit on a pod's processes and threads (the kubelet's podPidsLimit): a cgroup that its shim joins.

Everything the shim starts is in it too. The shim joins before it has a pod, because the kernel can take many
milliseconds to move a process. The group is named after the shim's pid; the next zygote removes what a killed shim
left behind.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import PidsLimit

_PREFIX, _LEAF = "torchyard-pod-", "shim"


def group_of(parent: str, shim_pid: int) -> str:
    return f"{parent}/{_PREFIX}{shim_pid}"


def join(limit: PidsLimit) -> None:
    """Create the group of this shim and enter it."""
    group = group_of(limit["parent"], os.getpid())
    with contextlib.suppress(FileExistsError):  # left by an earlier process with this pid
        os.mkdir(group)
    _write(f"{group}/pids.max", str(limit["limit"]))
    if limit["delegate"]:
        # Version 2 allows processes in leaves only; containers with limits get leaves beside the shim's.
        _write(f"{group}/cgroup.subtree_control", limit["delegate"])
        group = f"{group}/{_LEAF}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(group)
    enter(group)


def enter(group: str) -> None:
    """Move this process, which has one thread, into a group.

    Version 1 can move one thread by itself. That takes 0.1 ms, where the move of a process stops every fork of the
    machine for 5 to 15 ms: the kernel waits for an RCU grace period.
    """
    try:
        _write(f"{group}/tasks", "0")
    except FileNotFoundError:  # version 2
        _write(f"{group}/cgroup.procs", "0")


def remove(parent: str, shim_pid: int) -> None:
    """Remove the group of a shim that has ended; while a process is left in it, it stays."""
    group = group_of(parent, shim_pid)
    for path in (f"{group}/{_LEAF}", group):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def remove_unused(parent: str) -> None:
    """Remove the groups of shims that no longer exist."""
    for name in os.listdir(parent):
        pid = name.removeprefix(_PREFIX)
        if pid != name and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            remove(parent, int(pid))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
