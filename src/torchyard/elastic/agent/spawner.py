"""Starts workers: forked from the zygote if this interpreter runs the command, as new processes otherwise.

The spawner starts workers and reports their exits. The agent decides how many run, and when.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from torchyard.elastic.agent.fork_messages import ForkRequest, ZygoteReply
from torchyard.elastic.errors import cannot_start

FORK_TIMEOUT = 30.0
"""Seconds after which a zygote that does not respond is no longer used."""
OnExit = Callable[[int, int], None]


def python_program(command: Sequence[str]) -> list[str] | None:
    """Return what follows `python` in a command, or None unless it is this interpreter without options of its own."""
    interpreter = shutil.which(command[0])
    same = interpreter is not None and Path(interpreter).parent.resolve() == Path(sys.executable).parent.resolve()
    if not same or not Path(command[0]).name.startswith("python") or len(command) < 2:
        return None
    rest = list(command[1:])
    if rest[0] == "-u":
        rest = rest[1:]
    if not rest or (rest[0].startswith("-") and rest[0] != "-m"):
        return None
    return rest


class Spawner:
    """Starts the worker processes of one agent.

    Args:
        command: the program of every worker.
        on_exit: called with the pid and the exit code of every worker that ends; a negative code is a signal.
        zygote: whether workers may be forked from a process that has imported torch already.
    """

    def __init__(self, command: Sequence[str], on_exit: OnExit, *, zygote: bool = True) -> None:
        self._command = list(command)
        self._on_exit = on_exit
        self._program = python_program(command) if zygote else None
        self._channel: socket.socket | None = None
        self._zygote: subprocess.Popen[bytes] | None = None
        self._forking: dict[str, asyncio.Future[int]] = {}
        self._start_decided = asyncio.Event()
        self._exit_watchers: list[asyncio.Task[None]] = []
        self.warm = False

    def start(self) -> None:
        """Start the zygote. Importing torch once is quicker than importing it in every worker."""
        if self._program is None:
            self._start_decided.set()
            return
        channel, zygote_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.setblocking(False)
        with zygote_end:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "torchyard.elastic.agent.zygote", str(zygote_end.fileno())],
                pass_fds=[zygote_end.fileno()],
                start_new_session=True,  # Ctrl-C is for the runner, which ends the workers
            )
        self._channel = channel
        asyncio.get_running_loop().add_reader(channel, self._read_reply)

    def _read_reply(self) -> None:
        assert self._channel is not None
        try:
            packet = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._drop_zygote()
            return
        reply: ZygoteReply = json.loads(packet)
        if reply["type"] == "ready":
            self.warm = True
            self._start_decided.set()
        elif reply["type"] == "forked":
            pid = self._forking.pop(reply["name"], None)
            if pid is not None:
                pid.set_result(reply["pid"])
            else:
                with suppress(ProcessLookupError):
                    os.kill(reply["pid"], signal.SIGKILL)  # it came too late: another process has its name
        else:
            self._on_exit(reply["pid"], reply["code"])

    def _drop_zygote(self) -> None:
        """Continue without the zygote: it ended, for example because torch cannot be imported."""
        assert self._channel is not None
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        self.warm, self._channel = False, None
        self._start_decided.set()
        for pid in self._forking.values():
            pid.set_exception(ConnectionError("the zygote ended"))
        self._forking.clear()

    async def spawn(self, name: str, env: dict[str, str], output: int) -> int:
        """Start one worker and return its pid; its stdout and stderr go to the file descriptor `output`."""
        await self._start_decided.wait()
        if self.warm and self._channel is not None and self._program is not None:
            request: ForkRequest = {
                "name": name,
                "argv": self._program,
                "env": env,
                "cwd": str(Path.cwd()),
                "path": [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry],
            }
            pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._forking[name] = pid
            socket.send_fds(self._channel, [json.dumps(request).encode()], [output, output])
            try:
                async with asyncio.timeout(FORK_TIMEOUT):
                    return await pid
            except TimeoutError:
                # It is stopped or overloaded. It stays, because its children end with it.
                self._forking.pop(name, None)
                self.warm = False
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, env=env, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            raise cannot_start(self._command, error) from error
        self._exit_watchers.append(asyncio.create_task(self._watch_exit(process)))
        return process.pid

    async def _watch_exit(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self._on_exit(process.pid, code)

    async def close(self) -> None:
        if self._channel is not None:
            self._drop_zygote()
        if self._zygote is not None:
            self._zygote.kill()
            await asyncio.to_thread(self._zygote.wait)
        await asyncio.gather(*self._exit_watchers, return_exceptions=True)
