"""The process that is the cluster's network: it owns the user and network namespaces all pods are wired into.

It brings up the bridge and opens sockets there for the agent, which cannot enter the namespaces itself: the agent asks
on `network.sock` and receives them as open files. A listening socket is kept here too, so that connections queue up,
and are not refused, while an agent restarts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import Any, NamedTuple

from torchyard.node.shim import linux, netlink, outbound_nat, records, wire
from torchyard.node.shim.socket_server import UnixSocketServer, close_others

SOCKET = "network.sock"
_STARTUP_SECONDS = 10.0


class Namespaces(NamedTuple):
    """Open files of the namespaces pods join, and the bridge in there; empty where pods have no networks."""

    user: int
    network: int
    bridge: str

    @property
    def files(self) -> tuple[int, int]:
        return self.user, self.network


def find_or_start(root: str, settings: dict[str, Any]) -> Namespaces:
    """The namespaces of the living namespace holder, or of a new one."""
    known = records.read(f"{root}/namespace_holder.json")
    if known:
        with contextlib.suppress(OSError):
            channel = wire.connect(root, SOCKET, timeout=_STARTUP_SECONDS)
            wire.send(channel, {"op": "hello"})
            answer, _ = wire.receive(channel)
            channel.close()
            if answer and answer.get("pid") == known["pid"]:
                return _open_namespaces(known["pid"], settings)
    return _start(root, settings)


def _open_namespaces(pid: int, settings: dict[str, Any]) -> Namespaces:
    user, network = (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "net"))
    return Namespaces(user, network, (settings["network"] or {}).get("bridge", ""))


def _start(root: str, settings: dict[str, Any]) -> Namespaces:
    """Fork the namespace holder; its maps are written from outside, as the kernel wants it for a whole range of ids."""
    ready_read, ready_write = os.pipe()
    mapped_read, mapped_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            linux.set_process_name("yard-namespaces")
            close_others([ready_write, mapped_read])
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            linux.unshare(linux.NEWUSER | (linux.NEWNET if settings["network"] else 0))
            os.write(ready_write, b"u")
            os.read(mapped_read, 1)
            # the daemon's working copy of root's powers holds only inside the namespace
            os.setgid(0)
            os.setuid(0)
            if settings["network"]:
                _bring_up(root, settings["network"])
            server = NamespaceHolder(root)
            os.write(ready_write, b"n")
            os.close(ready_write)
            server.loop.run()
            os._exit(0)
        except BaseException as failed:  # the forked child must end here whatever happened
            with contextlib.suppress(OSError):
                os.write(ready_write, f"!{failed}".encode())
            os._exit(1)
    os.close(ready_write)
    os.close(mapped_read)
    _expect(ready_read, b"u")
    linux.write_identity_maps(pid)
    os.write(mapped_write, b"m")
    os.close(mapped_write)
    _expect(ready_read, b"n")
    os.close(ready_read)
    records.write(f"{root}/namespace_holder.json", {"pid": pid, "startedAt": time.time()})
    return _open_namespaces(pid, settings)


def _expect(pipe: int, sign: bytes) -> None:
    said = os.read(pipe, 4096)
    if said != sign:
        raise OSError(said[1:].decode() or "the namespace holder ended before it was ready")


def _bring_up(root: str, network: dict[str, Any]) -> None:
    netlink.link_up("lo")
    netlink.add_bridge(network["bridge"])
    netlink.add_address(network["bridge"], network["gateway"], network["prefix"])
    netlink.link_up(network["bridge"])
    netlink.own_whole_range(network["services"], network["services_prefix"])
    if network.get("relay"):
        said = outbound_nat.lead_out(network, lock=f"{root}/xtables.lock")
        if said:
            os.write(2, f"pods cannot reach the outside: {said}\n".encode())


class NamespaceHolder(UnixSocketServer):
    def __init__(self, root: str) -> None:
        super().__init__(root, SOCKET)
        self._listening: dict[tuple[str, str, int], socket.socket] = {}

    def on_hello(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self.answer(channel, {"pid": os.getpid()})

    def on_listen(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        """A socket bound inside the cluster's network; asked again, the same one."""
        key = (message["kind"], message["host"], message["port"])
        if key not in self._listening:
            kind = socket.SOCK_DGRAM if key[0] == "udp" else socket.SOCK_STREAM
            server = socket.socket(socket.AF_INET, kind | socket.SOCK_CLOEXEC)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind((key[1], key[2]))
                if kind == socket.SOCK_STREAM:
                    server.listen(128)
            except OSError:
                server.close()
                raise
            self._listening[key] = server
        self.answer(channel, {}, [self._listening[key].fileno()])

    def on_close(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        server = self._listening.pop((message["kind"], message["host"], message["port"]), None)
        if server:
            server.close()
        self.answer(channel, {})

    def on_shutdown(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self.answer(channel, {})
        self.close()
