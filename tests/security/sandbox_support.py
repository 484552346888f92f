"""One sandboxed container per call, and what it printed."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.node import support

from torchyard.node.shim.client import ShimClient

# `call(name, *arguments)`: the error number of a system call, 0 if it succeeds.
PRELUDE = """
import ctypes, json, os, sys
numbers = json.loads(os.environ["NUMBERS"])
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return ctypes.get_errno() if libc.syscall(ctypes.c_long(numbers[name]), *words) < 0 else 0
"""


async def output_of(harness: support.ShimHarness, script: str, *, pod: ShimClient | None = None, **more: Any) -> str:
    """What a shell script prints, in a container of a pod of its own unless one is given."""
    pod = pod or await harness.pod(f"p{len(harness.pods)}")
    name = more.pop("name", "main")
    ended = await harness.run(pod, name, ["sh", "-c", script], **more)
    text = "\n".join(harness.output(pod, name))
    assert ended["exitCode"] == 0, (ended, text)
    return text


async def python_output(harness: support.ShimHarness, program: str, **more: Any) -> Any:
    """What a Python program prints as JSON. It has `call`, and `numbers` of the system calls of this machine."""
    import platform

    from torchyard.node.runtime.seccomp import syscall_table

    native = syscall_table.ARCHITECTURES[platform.machine()][0]
    pod = more.pop("pod", None) or await harness.pod(f"p{len(harness.pods)}")
    env = {"PATH": support.DEFAULT_PATH, "NUMBERS": json.dumps(syscall_table.numbers(native))}
    name = more.pop("name", "main")
    ended = await harness.run(pod, name, [sys.executable, "-c", PRELUDE + program], env=env, **more)
    lines = harness.output(pod, name)
    assert ended["exitCode"] == 0, (ended, lines)
    return json.loads(lines[-1])
