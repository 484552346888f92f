"""One started container inside its shim: process, pipes, log, and the record of how it went."""

from __future__ import annotations

import json
import os
import select
import socket

from torchyard.node.shim import memory, output, process, records
from torchyard.node.shim.event_loop import READ, WRITE, EpollLoop


class Container:
    """Lives from the start request until its process has ended and its last output is on disk."""

    def __init__(self, pod: str, launch: process.Launch, loop: EpollLoop) -> None:
        self.launch, self._loop = launch, loop
        self.name, self.attempt = launch["container"], launch["attempt"]
        self._path = records.record_path(pod, self.name, self.attempt)
        log = launch["log"]
        self._log = output.LogFile(log["path"], max_bytes=log["max_bytes"], max_files=log["max_files"])
        self.streams: dict[str, output.OutputStream] = {}
        self.input = -1
        self.pid = 0
        self.failure = -1
        self.over_memory = False
        self.node_stops = False
        self._groups = memory.OomCounter(launch["cgroups"])
        self.record: records.ContainerRecord = {
            "container": self.name,
            "attempt": self.attempt,
            "id": launch["id"],
            "state": records.STARTING,
            "createdAt": output.stamp(),
        }
        self._save()

    def _save(self) -> None:
        records.write(self._path, self.record)

    def start(self) -> None:
        """Fork the process; `failure` becomes readable when it is known whether it came up."""
        launch = self.launch
        if launch["tty"]:
            started = process.start(launch, None)
        else:
            out_read, out_write = os.pipe2(os.O_CLOEXEC)
            err_read, err_write = os.pipe2(os.O_CLOEXEC)
            if launch["stdin"]:
                in_read, self.input = os.pipe2(os.O_CLOEXEC)
            else:
                in_read = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            started = process.start(launch, (in_read, out_write, err_write))
            for descriptor in (in_read, out_write, err_write):
                os.close(descriptor)
            self._pump("stdout", out_read)
            self._pump("stderr", err_read)
        self.pid, self.failure = started.pid, started.failure
        self._terminal_giver, self._machine_giver = started.terminal, started.machine

    def settle_start(self) -> bool:
        """Write down whether the process came up, and say so."""
        told = os.read(self.failure, 8192)
        os.close(self.failure)
        self.failure = -1
        if told:
            self.record |= {"state": records.EXITED, "exitCode": process.START_FAILED, "reason": "StartError"}
            self.record |= {"message": json.loads(told)["message"], "finishedAt": output.stamp()}
            if self._machine_giver:
                self._machine_giver.close()
            self._close()
            return False
        if self._terminal_giver:
            self._take_terminal(self._terminal_giver)
        self.record |= {"state": records.RUNNING, "pid": self.pid, "startedAt": output.stamp()}
        self._save()
        if self._machine_giver:
            process.let_go_of_machine(self.pid, self._machine_giver)
        return True

    def _take_terminal(self, giver: socket.socket) -> None:
        _, files, _, _ = socket.recv_fds(giver, 1, 1, socket.MSG_CMSG_CLOEXEC)
        giver.close()
        self.input = files[0]
        self._pump("stdout", os.dup(self.input))

    def ended(self, status: int) -> None:
        """The process is reaped: take its last output, then write down how it ended."""
        if self.launch["root"] is None and self.pid:
            _kill_session(self.pid)
        if self.record["state"] == records.EXITED:
            return
        for stream in self.streams.values():
            while stream.drain(self._drop_tap) and _has_more(stream.descriptor):
                pass
            stream.finish()
        code = os.waitstatus_to_exitcode(status)
        signal = -code if code < 0 else 0
        out_of_memory = self.over_memory or (signal == 9 and self._groups.were_exhausted())
        reason = "OOMKilled" if out_of_memory else "Completed" if code == 0 else "Error"
        self.record |= {"state": records.EXITED, "exitCode": 128 + signal if signal else code, "reason": reason}
        if signal:
            self.record["signal"] = signal
        if self.node_stops and code:
            self.record["nodeStopped"] = True
        self.record["finishedAt"] = output.stamp()
        self._close()

    def _close(self) -> None:
        self._save()
        for stream in self.streams.values():
            self._loop.forget(stream.descriptor)
            os.close(stream.descriptor)
            for tap in tuple(stream.taps):
                self._finish_tap(stream, tap)
        self.streams.clear()
        self._log.close()
        if self.input >= 0:
            os.close(self.input)
            self.input = -1

    def _pump(self, name: str, descriptor: int) -> None:
        stream = output.OutputStream(descriptor, name, self._log)
        self.streams[name] = stream
        self._loop.watch(descriptor, lambda: self._readable(stream))

    def _readable(self, stream: output.OutputStream) -> None:
        if not stream.drain(self._drop_tap):
            self._loop.forget(stream.descriptor)
        elif any(tap.full for tap in stream.taps):
            self._loop.forget(stream.descriptor)  # until the slow reader has caught up
        for tap in stream.taps:
            self._watch_tap(stream, tap)

    def tap(self, stream: str, descriptor: int) -> None:
        """Copy a stream to the given file as well, from now on."""
        if stream in self.streams:
            self.streams[stream].taps.append(output.AttachedWriter(descriptor))
        else:
            os.close(descriptor)

    def _watch_tap(self, stream: output.OutputStream, tap: output.AttachedWriter) -> None:
        if tap.waiting:
            self._loop.watch(tap.descriptor, lambda: self._tap_writable(stream, tap), WRITE)

    def _tap_writable(self, stream: output.OutputStream, tap: output.AttachedWriter) -> None:
        try:
            tap.flush()
        except OSError:
            self._drop_tap(tap)
        if not tap.waiting:
            self._loop.forget(tap.descriptor)
        if not stream.ended and not any(one.full for one in stream.taps):
            self._loop.watch(stream.descriptor, lambda: self._readable(stream), READ)

    def _drop_tap(self, tap: output.AttachedWriter) -> None:
        for stream in self.streams.values():
            if tap in stream.taps:
                stream.taps.remove(tap)
                self._loop.forget(tap.descriptor)
                os.close(tap.descriptor)

    def _finish_tap(self, stream: output.OutputStream, tap: output.AttachedWriter) -> None:
        """The container is gone: let an attached reader have the rest, then close."""
        if not tap.waiting:
            self._loop.forget(tap.descriptor)
            os.close(tap.descriptor)
            return

        def more() -> None:
            try:
                tap.flush()
            except OSError:
                tap.waiting.clear()
            if not tap.waiting:
                self._loop.forget(tap.descriptor)
                os.close(tap.descriptor)

        self._loop.watch(tap.descriptor, more, WRITE)


def _has_more(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def _kill_session(leader: int) -> None:
    """Without a pid namespace the kernel does not end a container's other processes; its session is what we know."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as text:
                    session = int(text.read().rpartition(")")[2].split()[3])
                if session == leader and int(name) != os.getpid():
                    os.kill(int(name), 9)
            except (OSError, ValueError):
                continue
