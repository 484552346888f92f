"""The two ends of a stream: the connection to the client, and the process or port in the pod."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Protocol

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.core.pod.logs import LogOptions

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Duplex(Protocol):
    """A two-way connection that carries messages or chunks of bytes; `receive` returns None at the end."""

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes | None: ...

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back when the client disconnects, even while nobody receives."""
        ...


class ContainerProcess(Protocol):
    """A command that exec started in a container, or the container's own process for attach."""

    async def write(self, data: bytes) -> None: ...

    async def close_input(self) -> None: ...

    def resize(self, *, width: int, height: int) -> None: ...

    def output(self, stream: str) -> AsyncIterator[bytes]:
        """The output on `stdout` or `stderr`, until its end."""
        ...

    async def wait(self) -> int:
        """The exit code; raises StatusError without one."""
        ...

    async def close(self) -> None:
        """Detach, and kill a command that is still running."""
        ...


class PodBackend(Protocol):
    """The node's implementation of logs, exec, attach and port-forward. Errors are StatusErrors."""

    def logs(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]: ...

    async def execute(
        self, pod: Object, container: str, command: list[str], *, stdin: bool, stderr: bool, tty: bool
    ) -> ContainerProcess: ...

    async def attach(
        self, pod: Object, container: str, *, stdin: bool, stderr: bool, tty: bool
    ) -> ContainerProcess: ...

    async def connect(self, pod: Object, port: int) -> Connection: ...


def exit_status(code: int) -> Object:
    """The Status at the end of an exec; kubectl exits with the code in its cause."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


async def exit_result(process: ContainerProcess) -> Object:
    try:
        return exit_status(await process.wait())
    except StatusError as failed:
        return failed.body()
