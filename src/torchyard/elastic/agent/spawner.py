"""Starts workers: forked from the zygote when the command is a program of this interpreter, as new processes otherwise.

It starts and reports; how many and when is the agent's business.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Exited = Callable[[int, int], None]


def python_program(command: Sequence[str]) -> list[str] | None:
    """What follows `python` in a command, if it is this very interpreter and takes no options of its own."""
    found = shutil.which(command[0])
    same = found is not None and Path(found).parent.resolve() == Path(sys.executable).parent.resolve()
    if not same or not Path(command[0]).name.startswith("python") or len(command) < 2:
        return None
    rest = list(command[1:])
    if rest[0] == "-u":
        rest = rest[1:]
    if not rest or (rest[0].startswith("-") and rest[0] != "-m"):
        return None
    return rest


class Spawner:
    """`exited` is called with the pid and exit code (negative: the signal) of every worker that ends."""

    def __init__(self, command: Sequence[str], exited: Exited, *, zygote: bool = True) -> None:
        self._command = list(command)
        self._exited = exited
        self._program = python_program(command) if zygote else None
        self._channel: socket.socket | None = None
        self._zygote: subprocess.Popen[bytes] | None = None
        self._waiting: dict[str, asyncio.Future[int]] = {}
        self._settled = asyncio.Event()
        self._watches: list[asyncio.Task[None]] = []
        self.warm = False

    def start(self) -> None:
        """Begin to warm the zygote up. One import of torch is quicker than one for each worker."""
        if self._program is None:
            self._settled.set()
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "torchyard.elastic.agent.zygote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
            )
        self._channel = ours
        asyncio.get_running_loop().add_reader(ours, self._hear)

    def _hear(self) -> None:
        assert self._channel is not None
        try:
            told = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            told = b""
        if not told:
            self._cool_down()
            return
        message = json.loads(told)
        if "ready" in message:
            self.warm = True
            self._settled.set()
        elif "started" in message:
            self._waiting.pop(message["started"]).set_result(message["pid"])
        else:
            self._exited(message["exited"], message["code"])

    def _cool_down(self) -> None:
        """The zygote ended (perhaps torch cannot be imported): go on without."""
        assert self._channel is not None
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        self.warm, self._channel = False, None
        self._settled.set()
        for waiting in self._waiting.values():
            waiting.set_exception(ConnectionError("the zygote ended"))
        self._waiting.clear()

    async def spawn(self, name: str, env: dict[str, str], output: int) -> int:
        """Start one worker; its stdout and stderr go to the file descriptor `output`."""
        await self._settled.wait()
        if self.warm and self._channel is not None and self._program is not None:
            request: dict[str, Any] = {"name": name, "argv": self._program, "env": env, "cwd": str(Path.cwd())}
            request["path"] = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
            waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._waiting[name] = waiting
            socket.send_fds(self._channel, [json.dumps(request).encode()], [output, output])
            pid: int = await waiting
            return pid
        process = await asyncio.create_subprocess_exec(*self._command, env=env, stdout=output, stderr=output)
        self._watches.append(asyncio.create_task(self._watch(process)))
        return process.pid

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self._exited(process.pid, code)

    async def close(self) -> None:
        if self._channel is not None:
            self._cool_down()
        if self._zygote is not None:
            self._zygote.kill()
            await asyncio.to_thread(self._zygote.wait)
        await asyncio.gather(*self._watches, return_exceptions=True)
