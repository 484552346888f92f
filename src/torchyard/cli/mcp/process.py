"""Runs one command of a tool in a process of its own, which a cancelled request ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any

# What an agent can read at once. The end of a log says more than its start.
MAX_CHARACTERS = 60_000
GRACE_SECONDS = 10.0
TIMED_OUT = 124  # as of timeout(1)


async def run_command(words: list[str], seconds: float) -> dict[str, Any]:
    """The result of a tool: what the command printed, or its error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "torchyard.cli",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1"},
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
        code = process.returncode
    except TimeoutError:
        out, err, code = b"", f"the command took longer than {seconds:g} s".encode(), TIMED_OUT
    finally:
        await _end(process)
    return tool_result(out.decode(errors="replace"), err.decode(errors="replace"), code or 0)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGINT)  # the command may have something to delete
    try:
        await asyncio.wait_for(process.wait(), GRACE_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def tool_result(out: str, err: str, code: int) -> dict[str, Any]:
    """`content` for people, `structuredContent` if the command printed JSON, `isError` if it failed."""
    parts = [part for part in (_shortened(out.strip()), _shortened(err.strip())) if part]
    if code:
        parts.append(f"exit code {code}")
    result: dict[str, Any] = {"content": [{"type": "text", "text": "\n".join(parts)}], "isError": code != 0}
    with contextlib.suppress(ValueError):  # the output of some commands is text
        result["structuredContent"] = {"result": json.loads(out)}
    return result


def _shortened(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    left_out = len(text) - MAX_CHARACTERS
    return f"({left_out} characters left out; ask for a tail or a pattern)\n{text[-MAX_CHARACTERS:]}"
