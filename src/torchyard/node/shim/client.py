"""The agent's side of the shim's, the zygote's and the namespace holder's sockets, for asyncio."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchyard.api.errors import YardError
from torchyard.node.shim import namespace_holder, records, shim_server, wire, zygote

ANSWER_SECONDS = 30.0


class ShimNotRunning(YardError):
    """Nobody listens there: the shim was never started, or is dead."""

    code = "ShimNotRunning"


class ShimTimeout(YardError):
    """Somebody listens there and does not answer: stopped, or stuck."""

    code = "ShimTimeout"


class ShimRequestError(YardError):
    """The shim answered, and the answer is no."""

    code = "ShimRequestError"

    def __init__(self, message: str, *, number: int = 0) -> None:
        super().__init__(message)
        self.errno = number


class Channel:
    """One connection. A context manager; leaving it hangs up, which ends what was asked for on it."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        link.setblocking(False)

    @classmethod
    async def open(cls, directory: Path, name: str) -> Channel:
        try:
            return cls(wire.connect(str(directory), name, timeout=ANSWER_SECONDS))
        except (FileNotFoundError, ConnectionError) as failed:
            raise ShimNotRunning(f"nothing listens on {name} of {directory.name}") from failed
        except TimeoutError as failed:
            raise _silent(directory, name) from failed

    def send(self, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        try:
            wire.send(self._link, message, files)
        except ConnectionError as failed:
            raise ShimNotRunning("the shim is gone") from failed

    async def receive(self) -> tuple[dict[str, Any], list[int]]:
        while True:
            try:
                message, files = wire.receive(self._link)
            except BlockingIOError:
                await self._readable()
                continue
            except ConnectionError:
                message, files = None, []
            if message is None:
                raise ShimNotRunning("the shim is gone")
            return message, files

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def woken() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(self._link, woken)
        try:
            await ready
        finally:
            loop.remove_reader(self._link)

    def close(self) -> None:
        self._link.close()

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _silent(directory: Path, name: str) -> ShimTimeout:
    return ShimTimeout(f"{name} of {directory.name} did not answer within {ANSWER_SECONDS:.0f} s")


async def ask(
    directory: Path, name: str, message: dict[str, Any], files: Sequence[int] = ()
) -> tuple[dict[str, Any], list[int]]:
    """One question, one answer."""
    async with await Channel.open(directory, name) as channel:
        channel.send(message, files)
        try:
            # not wait_for: before Python 3.12 it can swallow a cancellation
            async with asyncio.timeout(ANSWER_SECONDS):
                answer, received = await channel.receive()
        except TimeoutError as failed:
            raise _silent(directory, name) from failed
    if "error" in answer:
        raise ShimRequestError(answer["error"], number=answer.get("errno", 0))
    return answer, received


class ShimClient:
    """What the agent asks of one pod's shim."""

    def __init__(self, pod: Path) -> None:
        self.pod = pod

    async def channel(self) -> Channel:
        return await Channel.open(self.pod, shim_server.SOCKET)

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        return (await ask(self.pod, shim_server.SOCKET, message))[0]

    async def hello(self) -> dict[str, Any]:
        return await self._ask({"op": "hello"})

    async def start(self, container: str, attempt: int) -> records.ContainerRecord:
        answer = await self._ask({"op": "start", "container": container, "attempt": attempt})
        started: records.ContainerRecord = answer["record"]
        return started

    async def signal(self, container: str, number: int) -> None:
        await self._ask({"op": "signal", "container": container, "signal": number})

    async def connect(self, host: str, port: int) -> socket.socket:
        """A TCP connection made inside the pod."""
        _, files = await ask(self.pod, shim_server.SOCKET, {"op": "connect", "host": host, "port": port})
        link = socket.socket(fileno=files[0])
        link.setblocking(False)
        return link

    async def shutdown(self, *, node_stops: bool = False) -> None:
        """Kill every container and end. Those that the whole node ends with are marked so in their records."""
        await self._ask({"op": "shutdown", "node_stops": node_stops})


class ClusterNetwork:
    """Sockets inside the cluster's network."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def listen(self, kind: str, host: str, port: int) -> socket.socket:
        message = {"op": "listen", "kind": kind, "host": host, "port": port}
        return self._socket((await ask(self._root, namespace_holder.SOCKET, message))[1])

    async def close(self, kind: str, host: str, port: int) -> None:
        await ask(self._root, namespace_holder.SOCKET, {"op": "close", "kind": kind, "host": host, "port": port})

    async def connect(self, host: str, port: int, kind: str = "tcp") -> socket.socket:
        message = {"op": "connect", "kind": kind, "host": host, "port": port}
        return self._socket((await ask(self._root, namespace_holder.SOCKET, message))[1])

    async def shutdown(self) -> None:
        await ask(self._root, namespace_holder.SOCKET, {"op": "shutdown"})

    @staticmethod
    def _socket(files: list[int]) -> socket.socket:
        link = socket.socket(fileno=files[0])
        link.setblocking(False)
        return link


class ZygoteClient:
    """Starts shims through the node's zygote, and the zygote itself when there is none."""

    def __init__(self, root: Path, settings: dict[str, Any]) -> None:
        self._root, self._settings = root, settings
        self._starting = asyncio.Lock()

    async def start_shim(self, pod: Path) -> bool:
        """Returns when the pod's shim can be talked to; False if it was running already."""
        for _ in range(3):
            try:
                await ask(self._root, zygote.SOCKET, {"op": "shim", "pod": str(pod)})
            except ShimNotRunning:
                await self.ensure()
                continue
            except ShimRequestError as refused:
                if "running already" in refused.message:
                    return False
                raise
            return True
        raise ShimNotRunning(f"the node's zygote does not start; see {self._root / 'zygote.log'}")

    async def ensure(self) -> None:
        async with self._starting:
            try:
                await ask(self._root, zygote.SOCKET, {"op": "hello"})
            except ShimNotRunning:
                starting = asyncio.ensure_future(self._start_zygote())
                try:
                    await asyncio.shield(starting)
                except asyncio.CancelledError:
                    await asyncio.wait([starting])  # who ends the node can end only what answers
                    raise

    async def _start_zygote(self) -> None:
        records.write(str(self._root / "zygote.json"), self._settings)
        program = Path(zygote.__file__).with_name("__main__.py")
        starter = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", str(program), str(self._root))
        await starter.wait()
        deadline = time.monotonic() + zygote.HANDOVER_SECONDS
        while time.monotonic() < deadline:
            try:
                await ask(self._root, zygote.SOCKET, {"op": "hello"})
            except ShimNotRunning:
                await asyncio.sleep(0.01)
            else:
                return
        said = (self._root / "zygote.log").read_text()[-2000:]
        raise ShimNotRunning(f"the node's zygote does not start: {said.strip().splitlines()[-1:]}")

    async def shutdown(self) -> None:
        await ask(self._root, zygote.SOCKET, {"op": "shutdown"})


def close_files(files: Sequence[int]) -> None:
    for descriptor in files:
        os.close(descriptor)
