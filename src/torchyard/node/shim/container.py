"""One attempt of a container inside its shim: its process, pipes, log, and the record of what became of it."""

from __future__ import annotations

import json
import os
import select
import socket
from typing import TYPE_CHECKING

from torchyard.node.shim import memory, output, process, records, wire
from torchyard.node.shim.event_loop import READ, WRITE, EpollLoop

SAVE_RETRY_SECONDS = 1.0

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchyard.node.shim.record_types import ContainerConfig, ContainerRecord, StartFailure


class Container:
    """Lives from the start request until its process has ended and its last output is on disk."""

    def __init__(self, pod: str, config: ContainerConfig, loop: EpollLoop) -> None:
        self.config, self._loop = config, loop
        self.name, self.attempt = config["container"], config["attempt"]
        self._path = records.record_path(pod, self.name, self.attempt)
        log = config["log"]
        self._log = output.LogFile(log["path"], max_bytes=log["max_bytes"], max_files=log["max_files"])
        self.streams: dict[str, output.OutputStream] = {}
        self.input = -1
        self.pid = 0
        self.failure = -1  # a pipe; readable once it is known whether the process came up
        self.refusal = ""  # why a mount was refused
        self.over_memory = False
        self.node_stops = False
        self._oom_kills = memory.OomCounter(config["cgroups"])
        self.record: ContainerRecord = {
            "container": self.name,
            "attempt": self.attempt,
            "id": config["id"],
            "state": "starting",
            "createdAt": output.timestamp(),
        }
        self.saved: Callable[[], None] = lambda: None  # called when a change of the record is on disk, but late
        try:
            records.write(self._path, self.record)
        except OSError:
            self._log.close()
            raise

    def _save(self) -> None:
        """Write the record, now or as soon as the disk has room for it."""
        try:
            records.write(self._path, self.record)
        except OSError:  # there is no log either: it is on the same disk
            self._loop.call_later(SAVE_RETRY_SECONDS, self._save_again)

    def _save_again(self) -> None:
        try:
            records.write(self._path, self.record)
        except OSError:
            self._loop.call_later(SAVE_RETRY_SECONDS, self._save_again)
        else:
            self.saved()

    def start(self, files: list[int]) -> None:
        """Fork the init process; `failure` becomes readable when it is known whether it came up.

        `files` are the mounts that the config refers to.
        """
        config = self.config
        if config["tty"]:
            child = process.start_init(config, None, files)
        else:
            out_read, out_write = os.pipe2(os.O_CLOEXEC)
            err_read, err_write = os.pipe2(os.O_CLOEXEC)
            if config["stdin"]:
                in_read, self.input = os.pipe2(os.O_CLOEXEC)
            else:
                in_read = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            child = process.start_init(config, (in_read, out_write, err_write), files)
            for descriptor in (in_read, out_write, err_write):
                os.close(descriptor)
            self._add_stream("stdout", out_read)
            self._add_stream("stderr", err_read)
        self.pid, self.failure = child.pid, child.failure
        self._terminal_socket, self._old_root_socket = child.terminal, child.old_root

    def finish_start(self) -> bool:
        """Record whether the process came up, and return it. A refused mount leaves no record: it was no attempt."""
        report = os.read(self.failure, 8192)
        os.close(self.failure)
        self.failure = -1
        if report:
            failure: StartFailure = json.loads(report)
            self.record["state"], self.record["exitCode"] = "exited", process.START_FAILED
            self.record["reason"], self.record["message"] = "StartError", failure["message"]
            self.record["finishedAt"] = output.timestamp()
            if self._old_root_socket:
                self._old_root_socket.close()
            self._close()
            if failure.get("refused"):
                self.refusal = failure["message"]
                os.unlink(self._path)
            return False
        if self._terminal_socket:
            self._receive_terminal(self._terminal_socket)
        self.record["state"], self.record["pid"] = "running", self.pid
        self.record["startedAt"] = output.timestamp()
        self._save()
        if self._old_root_socket:
            process.detach_old_root(self.pid, self._old_root_socket)
        return True

    def _receive_terminal(self, sender: socket.socket) -> None:
        _, files = wire.receive_files(sender, 1, 1)
        sender.close()
        self.input = files[0]
        self._add_stream("stdout", os.dup(self.input))

    def ended(self, status: int) -> None:
        """The process is reaped: copy its last output, then record how it ended."""
        if not process.has_pid_namespace(self.config) and self.pid:
            _kill_session(self.pid)
        if self.record["state"] == records.EXITED:
            return
        for stream in self.streams.values():
            while stream.copy(self._drop_attached) and _has_more(stream.descriptor):
                pass
            stream.finish()
        code = os.waitstatus_to_exitcode(status)
        signal = -code if code < 0 else 0
        # Of any process, as with containerd: shells and data loaders report the death of a child with another code.
        out_of_memory = self.over_memory or self._oom_kills.increased()
        self.record["state"] = "exited"
        self.record["exitCode"] = 128 + signal if signal else code
        self.record["reason"] = "OOMKilled" if out_of_memory else "Completed" if code == 0 else "Error"
        if signal:
            self.record["signal"] = signal
        if self.node_stops and code:
            self.record["nodeStopped"] = True
        self.record["finishedAt"] = output.timestamp()
        self._close()

    def _close(self) -> None:
        self._save()
        for stream in self.streams.values():
            self._loop.unwatch(stream.descriptor)
            os.close(stream.descriptor)
            for writer in tuple(stream.attached):
                self._finish_attached(writer)
        self.streams.clear()
        self._log.close()
        if self.input >= 0:
            os.close(self.input)
            self.input = -1

    def _add_stream(self, name: str, descriptor: int) -> None:
        stream = output.OutputStream(descriptor, name, self._log)
        self.streams[name] = stream
        self._loop.watch(descriptor, lambda: self._readable(stream))

    def _readable(self, stream: output.OutputStream) -> None:
        if not stream.copy(self._drop_attached):
            self._loop.unwatch(stream.descriptor)
        elif any(writer.full for writer in stream.attached):
            self._loop.unwatch(stream.descriptor)  # until the slow client has caught up
        for writer in stream.attached:
            self._watch_attached(stream, writer)

    def attach(self, stream: str, descriptor: int) -> None:
        """Copy a stream to the given file as well, from now on."""
        if stream in self.streams:
            self.streams[stream].attached.append(output.AttachedWriter(descriptor))
        else:
            os.close(descriptor)

    def _watch_attached(self, stream: output.OutputStream, writer: output.AttachedWriter) -> None:
        if writer.buffer:
            self._loop.watch(writer.descriptor, lambda: self._attached_writable(stream, writer), WRITE)

    def _attached_writable(self, stream: output.OutputStream, writer: output.AttachedWriter) -> None:
        try:
            writer.flush()
        except OSError:
            self._drop_attached(writer)
        if not writer.buffer:
            self._loop.unwatch(writer.descriptor)
        if not stream.ended and not any(other.full for other in stream.attached):
            self._loop.watch(stream.descriptor, lambda: self._readable(stream), READ)

    def _drop_attached(self, writer: output.AttachedWriter) -> None:
        for stream in self.streams.values():
            if writer in stream.attached:
                stream.attached.remove(writer)
                self._loop.unwatch(writer.descriptor)
                os.close(writer.descriptor)

    def _finish_attached(self, writer: output.AttachedWriter) -> None:
        """The container has ended: send an attached client the rest, then close."""
        if not writer.buffer:
            self._loop.unwatch(writer.descriptor)
            os.close(writer.descriptor)
            return

        def send_rest() -> None:
            try:
                writer.flush()
            except OSError:
                writer.buffer.clear()
            if not writer.buffer:
                self._loop.unwatch(writer.descriptor)
                os.close(writer.descriptor)

        self._loop.watch(writer.descriptor, send_rest, WRITE)


def _has_more(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def _kill_session(leader: int) -> None:
    """Kill a session: without a pid namespace the kernel does not end a container's other processes."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as text:
                    session = int(text.read().rpartition(")")[2].split()[3])
                if session == leader and int(name) != os.getpid():
                    os.kill(int(name), 9)
            except (OSError, ValueError):
                continue
