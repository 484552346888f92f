"""Keeps freed memory for the next micro-batch."""

from __future__ import annotations

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
LARGEST_MMAP_THRESHOLD = 32 << 20
"""Bytes: glibc accepts no more on 64-bit machines."""
NEVER_TRIM = 1 << 30


def keep_freed_memory() -> None:
    """Let the process keep the memory of freed gradients.

    Each micro-batch allocates gradients that the last one has freed. With its defaults glibc gives such memory back to
    the kernel, and every page of it costs a fault again: on a CPU up to a fifth of a step. Other C libraries, and
    programs whose environment configures malloc, stay as they are.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, NEVER_TRIM)
