"""Logs, exec, attach and port connections of running pods, for the API server.

Needs only the node's state directory and the shims, not the agent: it works while an agent restarts.
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
from typing import TYPE_CHECKING, cast

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.core.pod.logs import LogOptions
from torchyard.node.logs import reader
from torchyard.node.pipes import ReadEnd, WriteEnd, wide_pipe
from torchyard.node.pod.pod_dir import PodDir
from torchyard.node.shim import client, records
from torchyard.node.shim.client import Channel, ExecFailed, ShimClient, ShimNotRunning, ShimRequestError

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import AttachReply, AttachRequest, ExecRequest

_END_OF_TRANSMISSION = b"\x04"
_KILLED = 137


class NodeStreams:
    def __init__(self, pods: Path) -> None:
        self._pods = pods

    def _dir(self, pod: Object) -> PodDir:
        return PodDir(self._pods / pod["metadata"]["uid"])

    async def logs(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        pod_dir = self._dir(pod)
        attempt = self._attempt(pod, pod_dir, container, previous=options.previous)
        # an attempt that has ended writes no more lines
        options = replace(options, follow=options.follow and not options.previous)

        def ended() -> bool:
            record = records.read_record(str(pod_dir.path), container, attempt)
            return record is None or record["state"] == records.EXITED

        async for piece in reader.read(pod_dir.log(container, attempt), options, ended=ended):
            yield piece

    @staticmethod
    def _attempt(pod: Object, pod_dir: PodDir, container: str, *, previous: bool) -> int:
        """The number of the attempt whose log is requested."""
        name = pod["metadata"]["name"]
        numbers = pod_dir.attempt_numbers(container)
        if previous:
            if len(numbers) < 2:
                raise errors.bad_request(messages.no_previous_container(container, name))
            return numbers[-2]
        if not numbers:
            raise errors.bad_request(messages.logs_unavailable(container, name, _waiting_reason(pod, container)))
        return numbers[-1]

    async def execute(
        self, pod: Object, container: str, command: list[str], *, stdin: bool, stderr: bool, tty: bool
    ) -> ExecSession:
        shim = ShimClient(self._dir(pod).path)
        try:
            return await ExecSession.start(shim, container, command, stdin=stdin, tty=tty)
        except ShimNotRunning:
            raise _not_running(container) from None

    async def attach(self, pod: Object, container: str, *, stdin: bool, stderr: bool, tty: bool) -> AttachSession:
        try:
            return await AttachSession.attach(ShimClient(self._dir(pod).path), container, stdin=stdin)
        except ShimNotRunning:
            raise _not_running(container) from None

    async def connect(self, pod: Object, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        shim = ShimClient(self._dir(pod).path)
        metadata = pod["metadata"]
        try:
            connection = await shim.connect("127.0.0.1", port)
        except ShimNotRunning:
            raise errors.bad_request(messages.pod_not_running(metadata["name"])) from None
        except ShimRequestError as error:
            raise errors.internal(messages.port_forward_failed(port, metadata["uid"], error.message)) from None
        return await asyncio.open_connection(sock=connection)


def _waiting_reason(pod: Object, container: str) -> str:
    for group in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for status in (pod.get("status") or {}).get(group) or ():
            if status["name"] == container:
                return (status["state"].get("waiting") or {}).get("reason") or "ContainerCreating"
    return "ContainerCreating"


def _not_running(container: str) -> StatusError:
    return errors.internal(messages.exec_failed(messages.container_not_running(container)))


class ExecSession:
    """A process beside a container's own. Its data never passes through the shim."""

    def __init__(self, channel: Channel, outputs: dict[str, ReadEnd], stdin: WriteEnd | None, terminal: int) -> None:
        self._channel, self._outputs, self._stdin, self._terminal = channel, outputs, stdin, terminal

    @classmethod
    async def start(
        cls, shim: ShimClient, container: str, command: list[str], *, stdin: bool, tty: bool
    ) -> ExecSession:
        request: ExecRequest = {
            "op": "exec",
            "container": container,
            "argv": command,
            "tty": tty,
            "env": {"TERM": "xterm"} if tty else {},
        }
        process_ends, own_ends = ([], []) if tty else _pipes(stdin=stdin)
        try:
            channel = await shim.exec_channel(request, process_ends)
        except ShimNotRunning:
            _close(own_ends)
            raise
        finally:
            _close(process_ends)
        try:
            async with asyncio.timeout(client.REPLY_SECONDS):
                files = await channel.exec_started()
        except BaseException as error:  # also if the caller is gone
            channel.close()  # which ends the process, if it has started
            _close(own_ends)
            if isinstance(error, ExecFailed):
                raise errors.internal(messages.exec_failed(error.message)) from None
            if isinstance(error, TimeoutError):
                problem = f"it did not start within {client.REPLY_SECONDS:g} s"
                raise errors.internal(messages.exec_failed(problem)) from None
            raise
        if tty:
            terminal = files[0]
            return cls(channel, {"stdout": ReadEnd(os.dup(terminal))}, WriteEnd(os.dup(terminal)), terminal)
        outputs = {"stdout": ReadEnd(own_ends[1]), "stderr": ReadEnd(own_ends[2])}
        return cls(channel, outputs, WriteEnd(own_ends[0]) if stdin else None, -1)

    async def write(self, data: bytes) -> None:
        if self._stdin:
            await self._stdin.write(data)

    async def close_input(self) -> None:
        if not self._stdin:
            return
        if self._terminal >= 0:
            await self._stdin.write(_END_OF_TRANSMISSION)  # one direction of a terminal cannot be closed
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
            return await self._channel.exec_exited()
        except ShimNotRunning:
            return _KILLED

    async def close(self) -> None:
        self._channel.close()
        for end in (*self._outputs.values(), self._stdin):
            if end:
                end.close()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1


def _pipes(*, stdin: bool) -> tuple[list[int], list[int]]:
    """stdin, stdout and stderr: the ends of the process and our own; -1 for an input that was not requested."""
    if stdin:
        in_read, in_write = wide_pipe()
    else:
        in_read, in_write = os.open("/dev/null", os.O_RDONLY), -1
    out_read, out_write = wide_pipe()
    err_read, err_write = wide_pipe()
    return [in_read, out_write, err_write], [in_write, out_read, err_read]


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)


class AttachSession(ExecSession):
    """The container's own streams, from now on. It ends when the container does."""

    @classmethod
    async def attach(cls, shim: ShimClient, container: str, *, stdin: bool) -> AttachSession:
        channel = await shim.channel()
        out_read, out_write = wide_pipe()
        err_read, err_write = wide_pipe()
        request: AttachRequest = {"op": "attach", "container": container, "stdin": stdin}
        try:
            channel.send(request, [out_write, err_write])
        finally:
            os.close(out_write)
            os.close(err_write)
        message, files = await channel.receive()
        outputs = {"stdout": ReadEnd(out_read), "stderr": ReadEnd(err_read)}
        if "error" in message:
            for end in outputs.values():
                end.close()
            channel.close()
            raise errors.bad_request(messages.attach_failed(message["error"]))
        reply = cast("AttachReply", message)
        input_end = files[0] if files else -1
        terminal = os.dup(input_end) if reply["tty"] and input_end >= 0 else -1
        return cls(channel, outputs, WriteEnd(input_end) if input_end >= 0 else None, terminal)

    async def wait(self) -> int:
        """Always 0, however the container ended: its exit code is in the pod's status."""
        return 0
