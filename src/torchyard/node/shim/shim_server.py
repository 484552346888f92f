"""The shim's own life: one pod's containers, and the requests of whoever runs the node.

Requests (see `serving`): hello, start, signal, exec, attach, connect, subscribe, shutdown.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket

from torchyard.node.shim import memory, process, records, wire
from torchyard.node.shim.container import Container
from torchyard.node.shim.socket_server import RequestRefused, UnixSocketServer, close_all

SOCKET = "shim.sock"
MEMORY_CHECK_SECONDS = 1.0


class ExecProcess:
    """A process started beside a container, for as long as the one who asked stays connected."""

    def __init__(self, channel: socket.socket, started: process.ChildProcess) -> None:
        self.channel, self.started = channel, started
        self.pending = True


class ShimServer(UnixSocketServer):
    def __init__(self, pod: str) -> None:
        super().__init__(pod, SOCKET)
        self._pod = pod
        self._containers: dict[str, Container] = {}
        self._sessions: dict[int, ExecProcess] = {}
        self._subscribers: list[socket.socket] = []
        self._stopping = False

    def run(self) -> None:
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.loop.watch(wake_read, lambda: self._reap(wake_read))
        self.loop.run()

    def hang_up(self, channel: socket.socket) -> None:
        """Who asked for an exec and leaves takes the process along."""
        for pid, session in self._sessions.items():
            if session.channel is channel:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
        if channel in self._subscribers:
            self._subscribers.remove(channel)
        super().hang_up(channel)

    def on_hello(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self.answer(channel, {"pid": os.getpid(), "containers": [one.record for one in self._containers.values()]})

    def on_start(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        """Start one attempt of a container, once: a second request for the same attempt is told about the first."""
        name, attempt = message["container"], message["attempt"]
        known = records.read(records.record_path(self._pod, name, attempt))
        if known:
            self.answer(channel, {"record": known})
            return
        if name in self._containers:
            raise RequestRefused(f"{name} is still running")
        if self._stopping:
            raise RequestRefused("the pod is being stopped")
        launch = records.read(records.launch_path(self._pod, name, attempt))
        if launch is None:
            raise RequestRefused(f"no launch of {name}, attempt {attempt}, was written down")
        container = Container(self._pod, launch, self.loop)
        container.start()
        self._containers[name] = container
        self.loop.watch(container.failure, lambda: self._came_up(channel, container))

    def _came_up(self, channel: socket.socket, container: Container) -> None:
        self.loop.forget(container.failure)
        if container.settle_start() and container.launch["memory_limit"]:
            self.loop.later(MEMORY_CHECK_SECONDS, lambda: self._check_memory(container))
        self._tell(container)
        self.answer(channel, {"record": container.record})

    def _check_memory(self, container: Container) -> None:
        if container.record["state"] != records.RUNNING:
            return
        own_namespace = container.launch["root"] is not None
        if memory.used_by(container.pid, own_namespace=own_namespace) > container.launch["memory_limit"]:
            container.over_memory = True
            self._kill(container, signal.SIGKILL)
        self.loop.later(MEMORY_CHECK_SECONDS, lambda: self._check_memory(container))

    def on_signal(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        container = self._containers.get(message["container"])
        if container:
            self._kill(container, message["signal"])
        self.answer(channel, {})

    def _kill(self, container: Container, number: int) -> None:
        stop = container.launch.get("kill")
        if number == signal.SIGKILL and stop:
            # an engine's client cannot pass on a signal that nobody can catch
            os.posix_spawnp(stop[0], stop, dict(os.environ))
            return
        with contextlib.suppress(ProcessLookupError):
            if container.launch["root"] is None and number == signal.SIGKILL:
                os.killpg(container.pid, number)
            else:
                os.kill(container.pid, number)

    def on_exec(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        container = self._running(message)
        stdio = None if message["tty"] else (files[0], files[1], files[2])
        launch = {**container.launch, "size": message.get("size")}
        started = process.start_beside(launch, container.pid, message, stdio)
        close_all(files)
        session = ExecProcess(channel, started)
        self._sessions[started.pid] = session
        self.loop.watch(started.failure, lambda: self._exec_came_up(session))

    def _exec_came_up(self, session: ExecProcess) -> None:
        started = session.started
        session.pending = False
        self.loop.forget(started.failure)
        told = os.read(started.failure, 8192)
        os.close(started.failure)
        terminal: list[int] = []
        if started.terminal:
            if not told:
                _, terminal, _, _ = socket.recv_fds(started.terminal, 1, 1, socket.MSG_CMSG_CLOEXEC)
            started.terminal.close()
        if told:
            self._sessions.pop(started.pid, None)
            self.answer(session.channel, {"failed": json.loads(told)})
        else:
            self.answer(session.channel, {"started": True}, terminal)
        close_all(terminal)

    def on_attach(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        """Files sent along receive copies of stdout and stderr; the answer carries the container's input."""
        container = self._running(message)
        for stream, descriptor in zip(("stdout", "stderr"), files, strict=False):
            container.tap(stream, descriptor)
        given = [container.input] if message["stdin"] and container.input >= 0 else []
        self.answer(channel, {"tty": container.launch["tty"], "stdin": bool(given)}, given)
        if given and container.launch["stdin_once"] and not container.launch["tty"]:
            os.close(container.input)
            container.input = -1

    def _running(self, message: wire.Message) -> Container:
        container = self._containers.get(message["container"])
        if container is None or container.record["state"] != records.RUNNING:
            raise RequestRefused(f"container {message['container']} is not running")
        return container

    def on_subscribe(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self._subscribers.append(channel)
        self.answer(channel, {"pid": os.getpid()})

    def _tell(self, container: Container) -> None:
        news = {key: container.record[key] for key in ("container", "attempt", "state")}
        for channel in tuple(self._subscribers):
            self.answer(channel, news)

    def on_shutdown(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self._stopping = True
        for container in self._containers.values():
            container.node_stops = message.get("node_stops", False)
            self._kill(container, signal.SIGKILL)
        self.answer(channel, {})
        self._end_if_empty()

    def _end_if_empty(self) -> None:
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
        self._end_if_empty()

    def _reaped(self, pid: int, status: int) -> None:
        session = self._sessions.get(pid)
        if session:
            if session.pending:
                self._exec_came_up(session)
            if self._sessions.pop(pid, None) and session.channel.fileno() >= 0:
                code = os.waitstatus_to_exitcode(status)
                self.answer(session.channel, {"exited": 128 - code if code < 0 else code})
            return
        for name, container in tuple(self._containers.items()):
            if container.pid == pid:
                if container.failure >= 0:
                    self.loop.run_callback(container.failure)
                container.ended(status)
                del self._containers[name]
                self._tell(container)
