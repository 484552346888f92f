"""A process that exchanges two names as fast as it can: what a hostile pod does to a volume that it shares."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_EXCHANGE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
left, right = os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2])
print("ready", flush=True)
while True:
    libc.renameat2(-100, left, -100, right, 2)  # RENAME_EXCHANGE
"""


@contextlib.contextmanager
def exchanging(left: Path, right: Path) -> Iterator[None]:
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("this C library has no renameat2")
    process = subprocess.Popen([sys.executable, "-c", _EXCHANGE, left, right], stdout=subprocess.PIPE)
    try:
        assert process.stdout
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()
