"""The shim: owns one pod's containers and serves requests about them.

Requests (see `socket_server`): hello, start, signal, exec, attach, connect, subscribe, shutdown.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from typing import TYPE_CHECKING

from torchyard.node.shim import memory, process, records, wire
from torchyard.node.shim.container import Container
from torchyard.node.shim.socket_server import RequestRefused, UnixSocketServer, close_all

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import (
        AttachReply,
        AttachRequest,
        ErrorReply,
        ExecReply,
        ExecRequest,
        HelloReply,
        ShutdownRequest,
        SignalRequest,
        StartReply,
        StartRequest,
        StateChange,
    )

SOCKET = "shim.sock"
MEMORY_CHECK_SECONDS = 1.0


class ExecProcess:
    """A process started beside a container, for as long as its client stays connected."""

    def __init__(self, channel: socket.socket, child: process.ChildProcess) -> None:
        self.channel, self.child = channel, child
        self.starting = True


class ShimServer(UnixSocketServer):
    def __init__(self, pod: str) -> None:
        super().__init__(pod, SOCKET)
        self._pod = pod
        self._containers: dict[str, Container] = {}
        self._execs: dict[int, ExecProcess] = {}
        self._subscribers: list[socket.socket] = []
        self._stopping = False

    def run(self) -> None:
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.loop.watch(wake_read, lambda: self._reap(wake_read))
        self.loop.run()

    def close_channel(self, channel: socket.socket) -> None:
        """A client that disconnects ends the processes it started by exec."""
        for pid, execution in self._execs.items():
            if execution.channel is channel:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
        if channel in self._subscribers:
            self._subscribers.remove(channel)
        super().close_channel(channel)

    def on_hello(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        containers = [container.record for container in self._containers.values()]
        reply: HelloReply = {"pid": os.getpid(), "containers": containers}
        self.reply(channel, reply)

    def on_start(self, channel: socket.socket, message: StartRequest, files: list[int]) -> None:
        """Start an attempt once, however often it is requested; the record is the reply."""
        name, attempt = message["container"], message["attempt"]
        record = records.read_record(self._pod, name, attempt)
        if record:
            close_all(files)
            reply: StartReply = {"record": record}
            self.reply(channel, reply)
            return
        if name in self._containers:
            raise RequestRefused(f"container {name} is still running", wire.ALREADY_RUNNING)
        if self._stopping:
            raise RequestRefused("the pod is being stopped", wire.NOT_RUNNING)
        config = records.read_config(self._pod, name, attempt)
        if config is None:
            raise RequestRefused(f"container {name} has no config for attempt {attempt}", wire.NO_CONFIG)
        container = Container(self._pod, config, self.loop)
        container.saved = lambda: self._notify(container)
        container.start(files)
        close_all(files)
        self._containers[name] = container
        self.loop.watch(container.failure, lambda: self._start_finished(channel, container))

    def _start_finished(self, channel: socket.socket, container: Container) -> None:
        self.loop.unwatch(container.failure)
        if container.finish_start() and container.config["memory_limit"]:
            self.loop.call_later(MEMORY_CHECK_SECONDS, lambda: self._check_memory(container))
        self._notify(container)
        if container.refusal:
            error: ErrorReply = {"error": container.refusal, "code": wire.MOUNT_REFUSED}
            self.reply(channel, error)
            return
        reply: StartReply = {"record": container.record}
        self.reply(channel, reply)

    def _check_memory(self, container: Container) -> None:
        if container.record["state"] != records.RUNNING:
            return
        own_namespace = process.has_pid_namespace(container.config)
        limit = container.config["memory_limit"]
        if limit and memory.used_by(container.pid, own_namespace=own_namespace) > limit:
            container.over_memory = True
            self._kill(container, signal.SIGKILL)
        self.loop.call_later(MEMORY_CHECK_SECONDS, lambda: self._check_memory(container))

    def on_signal(self, channel: socket.socket, message: SignalRequest, files: list[int]) -> None:
        container = self._containers.get(message["container"])
        if container:
            self._kill(container, message["signal"])
        self.reply(channel, {})

    def _kill(self, container: Container, number: int) -> None:
        command = container.config.get("kill")
        if number == signal.SIGKILL and command:
            # A container engine's client cannot forward a signal that cannot be caught.
            os.posix_spawnp(command[0], command, dict(os.environ))
            return
        with contextlib.suppress(ProcessLookupError):
            if not process.has_pid_namespace(container.config) and number == signal.SIGKILL:
                os.killpg(container.pid, number)
            else:
                os.kill(container.pid, number)

    def on_exec(self, channel: socket.socket, message: ExecRequest, files: list[int]) -> None:
        container = self._running(message["container"])
        stdio = None if message["tty"] else (files[0], files[1], files[2])
        child = process.start_exec(container.config, container.pid, message, stdio)
        close_all(files)
        execution = ExecProcess(channel, child)
        self._execs[child.pid] = execution
        self.loop.watch(child.failure, lambda: self._exec_start_finished(execution))

    def _exec_start_finished(self, execution: ExecProcess) -> None:
        child = execution.child
        execution.starting = False
        self.loop.unwatch(child.failure)
        report = os.read(child.failure, 8192)
        os.close(child.failure)
        terminal: list[int] = []
        if child.terminal:
            if not report:
                _, terminal = wire.receive_files(child.terminal, 1, 1)
            child.terminal.close()
        reply: ExecReply
        if report:
            self._execs.pop(child.pid, None)
            reply = {"failed": json.loads(report)}
            self.reply(execution.channel, reply)
        else:
            reply = {"started": True}
            self.reply(execution.channel, reply, terminal)
        close_all(terminal)

    def on_attach(self, channel: socket.socket, message: AttachRequest, files: list[int]) -> None:
        """The files sent along receive copies of stdout and stderr; the reply carries the container's input."""
        container = self._running(message["container"])
        for stream, descriptor in zip(("stdout", "stderr"), files, strict=False):
            container.attach(stream, descriptor)
        stdin = [container.input] if message["stdin"] and container.input >= 0 else []
        reply: AttachReply = {"tty": container.config["tty"], "stdin": bool(stdin)}
        self.reply(channel, reply, stdin)
        if stdin and container.config["stdin_once"] and not container.config["tty"]:
            os.close(container.input)
            container.input = -1

    def _running(self, name: str) -> Container:
        container = self._containers.get(name)
        if container is None or container.record["state"] != records.RUNNING:
            raise RequestRefused(f"container {name} is not running", wire.NOT_RUNNING)
        return container

    def on_subscribe(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self._subscribers.append(channel)
        reply: HelloReply = {"pid": os.getpid()}
        self.reply(channel, reply)

    def _notify(self, container: Container) -> None:
        record = container.record
        change: StateChange = {
            "container": record["container"],
            "attempt": record["attempt"],
            "state": record["state"],
        }
        for channel in tuple(self._subscribers):
            self.reply(channel, change)

    def on_shutdown(self, channel: socket.socket, message: ShutdownRequest, files: list[int]) -> None:
        self._stopping = True
        for container in self._containers.values():
            container.node_stops = message.get("node_stops", False)
            self._kill(container, signal.SIGKILL)
        self.reply(channel, {})
        self._close_if_empty()

    def _close_if_empty(self) -> None:
        if self._stopping and not self._containers:
            self.close()

    def _reap(self, wake: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            self._reaped(pid, status)
        self._close_if_empty()

    def _reaped(self, pid: int, status: int) -> None:
        execution = self._execs.get(pid)
        if execution:
            if execution.starting:
                self._exec_start_finished(execution)
            if self._execs.pop(pid, None) and execution.channel.fileno() >= 0:
                code = os.waitstatus_to_exitcode(status)
                reply: ExecReply = {"exited": 128 - code if code < 0 else code}
                self.reply(execution.channel, reply)
            return
        for name, container in tuple(self._containers.items()):
            if container.pid == pid:
                if container.failure >= 0:
                    self.loop.run_callback(container.failure)
                container.ended(status)
                del self._containers[name]
                self._notify(container)
