"""Ends a process together with its parent. Standard library only: short-lived commands import it too."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to send SIGKILL to this process when its parent ends. Linux only; elsewhere it does nothing.

    Args:
        parent: the process id of the parent. The kernel sends nothing for a parent that ended before this call;
            with its id, this process ends then, too.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
