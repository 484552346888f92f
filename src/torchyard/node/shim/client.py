"""The agent's side of the sockets of shim, zygote and namespace holder, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torchyard.api.errors import YardError
from torchyard.node.shim import legacy, namespace_holder, records, shim_server, wire, zygote

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import (
        ContainerRecord,
        ExecReply,
        ExecRequest,
        HelloReply,
        Protocol,
        ShutdownRequest,
        SignalRequest,
        SocketRequest,
        StartReply,
        StartRequest,
        StartShimRequest,
        ZygoteSettings,
    )

REPLY_SECONDS = 30.0
_CONNECT_RETRY_SECONDS = 0.05


class ShimNotRunning(YardError):
    """Nothing listens on the socket: the process was never started, or has ended."""

    code = "ShimNotRunning"


class ShimTimeout(YardError):
    """The process exists and does not reply: stopped, or stuck."""

    code = "ShimTimeout"


class ShimRequestError(YardError):
    """The reply is an error. `reply_code` is one of the codes in `wire`, `errno` that of a failed system call."""

    code = "ShimRequestError"

    def __init__(self, message: str, *, reply_code: str = "", errno: int = 0) -> None:
        super().__init__(message)
        self.reply_code, self.errno = reply_code, errno


class ExecFailed(YardError):
    """The process of an exec could not be started."""

    code = "ExecFailed"


class Channel:
    """One connection. A context manager; closing it ends what was requested on it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setblocking(False)

    @classmethod
    async def open(cls, directory: Path, name: str) -> Channel:
        """Connect without blocking: a process that is stopped accepts nothing, and its backlog is full one day."""
        deadline = time.monotonic() + REPLY_SECONDS
        while True:
            try:
                return cls(wire.connect(str(directory), name, timeout=0))
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise _timeout(directory, name) from error
            except (FileNotFoundError, ConnectionError) as error:
                raise ShimNotRunning(f"nothing listens on {name} of {directory.name}") from error
            await asyncio.sleep(_CONNECT_RETRY_SECONDS)

    def send(self, message: Mapping[str, object], files: Sequence[int] = ()) -> None:
        try:
            wire.send(self._connection, message, files)
        except ConnectionError as error:
            raise ShimNotRunning("the shim has ended") from error

    async def receive(self) -> tuple[wire.Message, list[int]]:
        while True:
            try:
                message, files = wire.receive(self._connection)
            except BlockingIOError:
                await self._readable()
                continue
            except ConnectionError:
                message, files = None, []
            if message is None:
                raise ShimNotRunning("the shim has ended")
            return message, files

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(self._connection, wake)
        try:
            await ready
        finally:
            loop.remove_reader(self._connection)

    async def exec_started(self) -> list[int]:
        """Wait for the process of an exec request; its terminal, if it has one. Raises ExecFailed."""
        message, files = await self.receive()
        reply = cast("ExecReply", message)
        if "started" not in reply:
            raise ExecFailed(reply["failed"]["message"] if "failed" in reply else reply.get("error", ""))
        return files

    async def exec_exited(self) -> int:
        """The exit code of the process of an exec request."""
        reply = cast("ExecReply", (await self.receive())[0])
        return reply["exited"]

    def close(self) -> None:
        self._connection.close()

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _timeout(directory: Path, name: str) -> ShimTimeout:
    return ShimTimeout(f"{name} of {directory.name} did not reply within {REPLY_SECONDS:.0f} s")


async def request(
    directory: Path, name: str, message: Mapping[str, object], files: Sequence[int] = ()
) -> tuple[dict[str, Any], list[int]]:
    """One request, one reply."""
    async with await Channel.open(directory, name) as channel:
        channel.send(message, files)
        try:
            # not wait_for: before Python 3.12 it can swallow a cancellation
            async with asyncio.timeout(REPLY_SECONDS):
                reply, received = await channel.receive()
        except TimeoutError as error:
            raise _timeout(directory, name) from error
    if "error" in reply:
        raise ShimRequestError(reply["error"], reply_code=reply.get("code", ""), errno=reply.get("errno", 0))
    return reply, received


def _received_socket(files: list[int]) -> socket.socket:
    connection = socket.socket(fileno=files[0])
    connection.setblocking(False)
    return connection


class ShimClient:
    """Requests to one pod's shim."""

    def __init__(self, pod: Path) -> None:
        self.pod = pod

    async def channel(self) -> Channel:
        return await Channel.open(self.pod, shim_server.SOCKET)

    async def exec_channel(self, message: ExecRequest, files: Sequence[int] = ()) -> Channel:
        """A channel on which an exec was requested; closing it ends the process."""
        channel = await self.channel()
        try:
            channel.send(message, files)
        except ShimNotRunning:
            channel.close()
            raise
        return channel

    async def _request(self, message: Mapping[str, object], files: Sequence[int] = ()) -> dict[str, Any]:
        return (await request(self.pod, shim_server.SOCKET, message, files))[0]

    async def hello(self) -> HelloReply:
        return cast("HelloReply", await self._request({"op": "hello"}))

    async def start(self, container: str, attempt: int, files: Sequence[int] = ()) -> ContainerRecord:
        """Start an attempt. `files` are the mounts that its config refers to."""
        message: StartRequest = {"op": "start", "container": container, "attempt": attempt}
        reply = cast("StartReply", await self._request(message, files))
        return reply["record"]

    async def signal(self, container: str, number: int) -> None:
        message: SignalRequest = {"op": "signal", "container": container, "signal": number}
        await self._request(message)

    async def connect(self, host: str, port: int) -> socket.socket:
        """A TCP connection made inside the pod."""
        message: SocketRequest = {"op": "connect", "host": host, "port": port}
        return _received_socket((await request(self.pod, shim_server.SOCKET, message))[1])

    async def shutdown(self, *, node_stops: bool = False) -> None:
        """Kill every container and end. When the whole node stops, the containers' records say so."""
        message: ShutdownRequest = {"op": "shutdown", "node_stops": node_stops}
        await self._request(message)


class ClusterNetwork:
    """Sockets in the cluster's network, which the namespace holder opens."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def listen(self, kind: Protocol, host: str, port: int) -> socket.socket:
        return _received_socket(await self._request({"op": "listen", "kind": kind, "host": host, "port": port}))

    async def close(self, kind: Protocol, host: str, port: int) -> None:
        await self._request({"op": "close", "kind": kind, "host": host, "port": port})

    async def connect(self, host: str, port: int, kind: Protocol = "tcp") -> socket.socket:
        return _received_socket(await self._request({"op": "connect", "kind": kind, "host": host, "port": port}))

    async def shutdown(self) -> None:
        await request(self._root, namespace_holder.SOCKET, {"op": "shutdown"})

    async def _request(self, message: SocketRequest) -> list[int]:
        return (await request(self._root, namespace_holder.SOCKET, message))[1]


class ZygoteClient:
    """Starts shims through the node's zygote, and the zygote itself when there is none."""

    def __init__(self, root: Path, settings: ZygoteSettings | None = None) -> None:
        self._root = root
        self._settings: ZygoteSettings = settings or {"namespaces": False, "network": None}
        self._starting = asyncio.Lock()

    async def start_shim(self, pod: Path) -> bool:
        """Return when the pod's shim serves requests; False if it was running before."""
        message: StartShimRequest = {"op": "shim", "pod": str(pod)}
        for _ in range(3):
            try:
                await request(self._root, zygote.SOCKET, message)
            except ShimNotRunning:
                await self.ensure()
                continue
            except ShimRequestError as error:
                if error.reply_code == wire.ALREADY_RUNNING:
                    return False
                raise
            return True
        raise ShimNotRunning(f"the zygote does not start; see {self._root / zygote.LOG}")

    async def ensure(self) -> None:
        async with self._starting:
            try:
                await request(self._root, zygote.SOCKET, {"op": "hello"})
            except ShimNotRunning:
                start = asyncio.ensure_future(self._start_zygote())
                try:
                    await asyncio.shield(start)
                except asyncio.CancelledError:
                    while not start.done():  # a node that stops can only end a zygote that replies
                        with contextlib.suppress(asyncio.CancelledError):  # what takes long is cancelled again
                            await asyncio.wait([start])
                    raise

    async def _start_zygote(self) -> None:
        records.write(str(self._root / zygote.SETTINGS), self._settings)
        program = Path(zygote.__file__).with_name("__main__.py")
        starter = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", str(program), str(self._root))
        await starter.wait()
        deadline = time.monotonic() + zygote.HANDOVER_SECONDS
        while time.monotonic() < deadline:
            try:
                await request(self._root, zygote.SOCKET, {"op": "hello"})
            except ShimNotRunning:
                await asyncio.sleep(0.01)
            else:
                return
        log = (self._root / zygote.LOG).read_text()[-2000:]
        raise ShimNotRunning(f"the zygote does not start: {log.strip().splitlines()[-1:]}")

    async def shutdown(self) -> None:
        legacy.shut_down_zygote(str(self._root))
        await request(self._root, zygote.SOCKET, {"op": "shutdown"})
