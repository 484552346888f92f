"""What can be asked of a running pod from outside: logs, exec, attach, port connections.

Needs only the node's state directory and the shims, not the agent: it goes on working while an agent restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from pathlib import Path

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.core.pod.logs import LogOptions
from torchyard.node.logs import reader as logs
from torchyard.node.pipes import ReadEnd, WriteEnd, wide_pipe
from torchyard.node.pod.pod_dir import PodDir
from torchyard.node.shim import records
from torchyard.node.shim.client import Channel, ShimClient, ShimNotRunning, ShimRequestError


class NodeStreams:
    def __init__(self, pods: Path) -> None:
        self._pods = pods

    def _home(self, pod: Object) -> PodDir:
        return PodDir(self._pods / pod["metadata"]["uid"])

    async def logs(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        home = self._home(pod)
        attempt = self._attempt(pod, home, container, previous=options.previous)
        # an ended attempt gets no more lines
        wanted = replace(options, follow=options.follow and not options.previous)
        path = records.record_path(str(home.path), container, attempt)

        def ended() -> bool:
            known = records.read(path)
            return known is None or known["state"] == records.EXITED

        async for piece in logs.read(home.log(container, attempt), wanted, ended=ended):
            yield piece

    @staticmethod
    def _attempt(pod: Object, home: PodDir, container: str, *, previous: bool) -> int:
        name = pod["metadata"]["name"]
        numbers = sorted(int(path.stem) for path in home.container(container).glob("*.record"))
        if previous:
            if len(numbers) < 2:
                raise errors.bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
            return numbers[-2]
        if not numbers:
            reason = "ContainerCreating"
            for group in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
                for one in (pod.get("status") or {}).get(group) or ():
                    if one["name"] == container:
                        reason = (one["state"].get("waiting") or {}).get("reason") or reason
            why = "trying and failing to pull image" if "ImagePull" in reason else f"waiting to start: {reason}"
            raise errors.bad_request(f'container "{container}" in pod "{name}" is {why}')
        return numbers[-1]

    async def execute(
        self, pod: Object, container: str, command: list[str], *, stdin: bool, stderr: bool, tty: bool
    ) -> ExecSession:
        shim = ShimClient(self._home(pod).path)
        try:
            return await ExecSession.start(shim, container, command, stdin=stdin, tty=tty)
        except ShimNotRunning:
            raise _not_running(container) from None

    async def attach(self, pod: Object, container: str, *, stdin: bool, stderr: bool, tty: bool) -> AttachSession:
        home = self._home(pod)
        try:
            return await AttachSession.start(home, container, stdin=stdin)
        except ShimNotRunning:
            raise _not_running(container) from None

    async def connect(self, pod: Object, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        shim = ShimClient(self._home(pod).path)
        name = pod["metadata"]["name"]
        try:
            link = await shim.connect("127.0.0.1", port)
        except ShimNotRunning:
            raise errors.bad_request(f"pod {name} is not running") from None
        except ShimRequestError as refused:
            said = f"error forwarding port {port} to pod {pod['metadata']['uid']}, uid : "
            said += f"failed to connect to localhost:{port} inside the pod: connect: {refused.message}"
            raise errors.internal(said) from None
        return await asyncio.open_connection(sock=link)


def _not_running(container: str) -> StatusError:
    return errors.internal(f'error executing command in container: container "{container}" is not running')


class ExecSession:
    """A process beside a container's own. Its data never passes through the shim."""

    def __init__(self, channel: Channel, outputs: dict[str, ReadEnd], stdin: WriteEnd | None, terminal: int) -> None:
        self._channel, self._outputs, self._stdin, self._terminal = channel, outputs, stdin, terminal

    @classmethod
    async def start(
        cls, shim: ShimClient, container: str, command: list[str], *, stdin: bool, tty: bool
    ) -> ExecSession:
        channel = await shim.channel()
        request: Object = {
            "op": "exec",
            "container": container,
            "argv": command,
            "tty": tty,
            "env": {"TERM": "xterm"} if tty else {},
        }
        theirs: list[int] = []
        ours: list[int] = []
        if not tty:
            if stdin:
                in_read, in_write = wide_pipe()
            else:
                in_read, in_write = os.open("/dev/null", os.O_RDONLY), -1
            out_read, out_write = wide_pipe()
            err_read, err_write = wide_pipe()
            theirs, ours = [in_read, out_write, err_write], [in_write, out_read, err_read]
        try:
            channel.send(request, theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        answer, files = await channel.receive()
        if "started" not in answer:
            channel.close()
            for descriptor in ours:
                if descriptor >= 0:
                    os.close(descriptor)
            said = (answer.get("failed") or {}).get("message") or answer.get("error", "")
            raise errors.internal(f"error executing command in container: {said}")
        if tty:
            terminal = files[0]
            return cls(channel, {"stdout": ReadEnd(os.dup(terminal))}, WriteEnd(os.dup(terminal)), terminal)
        outputs = {"stdout": ReadEnd(ours[1]), "stderr": ReadEnd(ours[2])}
        return cls(channel, outputs, WriteEnd(ours[0]) if stdin else None, -1)

    async def write(self, data: bytes) -> None:
        if self._stdin:
            await self._stdin.write(data)

    async def close_input(self) -> None:
        if not self._stdin:
            return
        if self._terminal >= 0:
            await self._stdin.write(b"\x04")  # end of transmission: a terminal cannot be closed halfway
        else:
            self._stdin.close()

    def resize(self, *, width: int, height: int) -> None:
        if self._terminal >= 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    async def output(self, stream: str) -> AsyncIterator[bytes]:
        end = self._outputs.get(stream)
        if end:
            async for data in end.pieces():
                yield data

    async def wait(self) -> int:
        try:
            answer, _ = await self._channel.receive()
        except ShimNotRunning:
            return 137
        return int(answer["exited"])

    async def close(self) -> None:
        self._channel.close()
        for end in (*self._outputs.values(), self._stdin):
            if end:
                end.close()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1


class AttachSession(ExecSession):
    """The container's own streams, from now on. Its end is the container's end."""

    _home: PodDir
    _container: str
    _attempt: int

    @classmethod
    async def start(cls, home: PodDir, container: str, *, stdin: bool) -> AttachSession:  # type: ignore[override]
        channel = await ShimClient(home.path).channel()
        out_read, out_write = wide_pipe()
        err_read, err_write = wide_pipe()
        try:
            channel.send({"op": "attach", "container": container, "stdin": stdin}, [out_write, err_write])
        finally:
            os.close(out_write)
            os.close(err_write)
        answer, files = await channel.receive()
        outputs = {"stdout": ReadEnd(out_read), "stderr": ReadEnd(err_read)}
        if "error" in answer:
            for end in outputs.values():
                end.close()
            channel.close()
            raise errors.bad_request(f"unable to attach: {answer['error']}")
        given = files[0] if files else -1
        terminal = os.dup(given) if answer["tty"] and given >= 0 else -1
        made = cls(channel, outputs, WriteEnd(given) if given >= 0 else None, terminal)
        made._home, made._container = home, container
        made._attempt = max(int(path.stem) for path in home.container(container).glob("*.record"))
        return made

    async def wait(self) -> int:
        """Attach ends well however the container ended: its exit code is in the pod's status."""
        return 0
