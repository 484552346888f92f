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
_MAX_BYTES = 4 * (MAX_CHARACTERS + 1)  # a character of UTF-8 has at most four bytes
_PIECE_BYTES = 1 << 16


class OutputTail:
    """The end of a stream, of which it keeps enough for `MAX_CHARACTERS` and one more."""

    def __init__(self) -> None:
        self._data = bytearray()

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read until the stream ends."""
        while piece := await stream.read(_PIECE_BYTES):
            self._data += piece
            del self._data[:-_MAX_BYTES]

    @property
    def text(self) -> str:
        return self._data.decode(errors="replace")


async def run_command(words: list[str], seconds: float) -> dict[str, Any]:
    """The result of a tool: what the command printed, or its error."""
    return await run_process([sys.executable, "-m", "torchyard.cli", *words], seconds)


async def run_process(command: list[str], seconds: float) -> dict[str, Any]:
    """Run a program until it ends or the time is over, and return what it printed until then."""
    _let_programs_be_interrupted()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert process.stdout is not None and process.stderr is not None
    out, err = OutputTail(), OutputTail()
    reading = [asyncio.create_task(out.read(process.stdout)), asyncio.create_task(err.read(process.stderr))]
    is_late = False
    try:
        _, unfinished = await asyncio.wait(reading, timeout=seconds)
        is_late = bool(unfinished)
        if not is_late:
            await process.wait()
    finally:
        await _end(process)
        await _finish(reading)
    if is_late:
        return tool_result(out.text, f"{err.text}\nthe command took longer than {seconds:g} s", TIMED_OUT)
    return tool_result(out.text, err.text, process.returncode or 0)


def _let_programs_be_interrupted() -> None:
    """A shell starts what it runs in the background with SIGINT ignored, and a program inherits that; a handler not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGINT)  # the command may have something to delete
    try:
        await asyncio.wait_for(process.wait(), GRACE_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _finish(reading: list[asyncio.Task[None]]) -> None:
    """Wait for the rest of the output; a process that the command has left behind may keep the pipes open."""
    await asyncio.wait(reading, timeout=1.0)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


def tool_result(out: str, err: str, code: int) -> dict[str, Any]:
    """`content` for people, `structuredContent` if the command printed JSON, `isError` if it failed."""
    parts = [part for part in (_shortened(out.strip()), _shortened(err.strip())) if part]
    if code:
        parts.append(f"exit code {code}")
    result: dict[str, Any] = {"content": [{"type": "text", "text": "\n".join(parts)}], "isError": code != 0}
    if len(out.strip()) <= MAX_CHARACTERS:
        with contextlib.suppress(ValueError, RecursionError):  # the output of some commands is text
            result["structuredContent"] = {"result": _parse(out)}
    return result


def _parse(text: str) -> Any:
    """JSON, and only what JSON can write again: Python also reads NaN, and 1e999 as an infinity."""
    value = json.loads(text)
    json.dumps(value, allow_nan=False)
    return value


def _shortened(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"(the start is left out; ask for a tail, a pattern or fewer jobs)\n{text[-MAX_CHARACTERS:]}"
