"""The process that holds the node's user and network namespaces (containerd's "pause" container, but one per node).

It sets up the bridge that pods are attached to, and opens sockets in the cluster's network for the agent, which cannot
enter the namespaces itself: the agent sends a request to `network.sock` and receives open files. Listening sockets stay
open here too, so that connections queue up, and are not refused, while an agent restarts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from torchyard.node.shim import legacy, linux, netlink, outbound_nat, records, wire
from torchyard.node.shim.socket_server import UnixSocketServer, close_inherited

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import (
        ClusterNetworkConfig,
        HelloReply,
        NamespaceHolderRecord,
        SocketRequest,
        ZygoteSettings,
    )

SOCKET = "network.sock"
RECORD = "namespaces.json"
_XTABLES_LOCK = "xtables.lock"
_STARTUP_SECONDS = 10.0


class Namespaces(NamedTuple):
    """Open files of the namespaces that pods join, and the name of the bridge; empty where pods have no network."""

    user: int
    network: int
    bridge: str

    @property
    def files(self) -> tuple[int, int]:
        return self.user, self.network


def find_or_start(root: str, settings: ZygoteSettings) -> Namespaces:
    """The namespaces of the running holder, or of a new one."""
    record = records.read(f"{root}/{RECORD}") or legacy.namespace_holder_record(root)
    if record:
        with contextlib.suppress(OSError):
            channel = wire.connect(root, SOCKET, timeout=_STARTUP_SECONDS)
            wire.send(channel, {"op": "hello"})
            reply, _ = wire.receive(channel)
            channel.close()
            if reply and reply.get("pid") == record["pid"]:
                return _open_namespaces(record["pid"], settings)
    return _start(root, settings)


def _open_namespaces(pid: int, settings: ZygoteSettings) -> Namespaces:
    user, network = (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "net"))
    return Namespaces(user, network, settings["network"]["bridge"] if settings["network"] else "")


def _start(root: str, settings: ZygoteSettings) -> Namespaces:
    """Fork the holder. Its id maps are written from outside: the kernel requires that for a whole range of ids."""
    ready_read, ready_write = os.pipe()
    mapped_read, mapped_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            linux.set_process_name("yard-namespaces")
            close_inherited([ready_write, mapped_read])
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            linux.unshare(linux.NEWUSER | (linux.NEWNET if settings["network"] else 0))
            os.write(ready_write, b"u")
            os.read(mapped_read, 1)
            # Root of the new user namespace: its powers do not reach beyond it.
            os.setgid(0)
            os.setuid(0)
            if settings["network"]:
                _set_up_network(root, settings["network"])
            server = NamespaceHolder(root, settings["network"])
            os.write(ready_write, b"n")
            os.close(ready_write)
            server.loop.run()
            os._exit(0)
        except BaseException as error:  # the forked child must end here whatever happened
            with contextlib.suppress(OSError):
                os.write(ready_write, f"!{error}".encode())
            os._exit(1)
    os.close(ready_write)
    os.close(mapped_read)
    _expect(ready_read, b"u")
    linux.write_identity_maps(pid)
    os.write(mapped_write, b"m")
    os.close(mapped_write)
    _expect(ready_read, b"n")
    os.close(ready_read)
    record: NamespaceHolderRecord = {"pid": pid, "startedAt": time.time()}
    records.write(f"{root}/{RECORD}", record)
    return _open_namespaces(pid, settings)


def _expect(pipe: int, sign: bytes) -> None:
    report = os.read(pipe, 4096)
    if report != sign:
        raise OSError(report[1:].decode() or "the namespace holder ended before it was ready")


def _set_up_network(root: str, network: ClusterNetworkConfig) -> None:
    netlink.link_up("lo")
    netlink.add_bridge(network["bridge"])
    netlink.add_address(network["bridge"], network["gateway"], network["prefix"])
    netlink.link_up(network["bridge"])
    netlink.add_local_route(network["services"], network["services_prefix"])
    if network.get("relay"):
        problem = outbound_nat.redirect_outbound(network, lock=f"{root}/{_XTABLES_LOCK}")
        if problem:
            os.write(2, f"pods have no outbound network: reason={problem!r}\n".encode())


class NamespaceHolder(UnixSocketServer):
    def __init__(self, root: str, network: ClusterNetworkConfig | None = None) -> None:
        super().__init__(root, SOCKET)
        self._lock, self._network = f"{root}/{_XTABLES_LOCK}", network
        self._listening: dict[tuple[str, str, int], socket.socket] = {}
        self._added: set[str] = set()  # local addresses outside the cluster's ranges: other ServiceCIDRs, the node's

    def on_hello(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        reply: HelloReply = {"pid": os.getpid()}
        self.reply(channel, reply)

    def on_listen(self, channel: socket.socket, message: SocketRequest, files: list[int]) -> None:
        """A socket bound in the cluster's network; a repeated request gets the same one."""
        key = (message["kind"], message["host"], message["port"])
        if key not in self._listening:
            kind = socket.SOCK_DGRAM if key[0] == "udp" else socket.SOCK_STREAM
            server = socket.socket(socket.AF_INET, kind | socket.SOCK_CLOEXEC)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self._bind(server, key[1], key[2])
                if kind == socket.SOCK_STREAM:
                    server.listen(128)
            except OSError:
                server.close()
                self._remove_unused(key[1])
                raise
            self._listening[key] = server
            self._redirect(key, outside=False)
        self.reply(channel, {}, [self._listening[key].fileno()])

    def on_close(self, channel: socket.socket, message: SocketRequest, files: list[int]) -> None:
        key = (message["kind"], message["host"], message["port"])
        server = self._listening.pop(key, None)
        if server:
            server.close()
            self._redirect(key, outside=True)
            self._remove_unused(key[1])
        self.reply(channel, {})

    def _bind(self, server: socket.socket, host: str, port: int) -> None:
        try:
            server.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL or not self._add_address(host):
                raise
            server.bind((host, port))

    def _add_address(self, host: str) -> bool:
        """Make an address outside the cluster's ranges local; False if it is one that pods have."""
        if self._network is None or _same_network(host, self._network["gateway"], self._network["prefix"]):
            return False
        netlink.add_local_route(host, 32)
        self._added.add(host)
        return True

    def _remove_unused(self, host: str) -> None:
        """Once nothing listens on it, connections to it leave the cluster again."""
        if host in self._added and not any(key[1] == host for key in self._listening):
            self._added.discard(host)
            netlink.remove_local_route(host, 32)

    def _redirect(self, key: tuple[str, str, int], *, outside: bool) -> None:
        """Whether connections to a port of an added address leave the cluster."""
        if self._network and key[0] == "tcp" and key[1] in self._added:
            outbound_nat.except_port(self._network, key[1], key[2], lock=self._lock, remove=outside)

    def on_shutdown(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        self.reply(channel, {})
        self.close()


def _same_network(left: str, right: str, prefix: int) -> bool:
    numbers = [int.from_bytes(socket.inet_aton(address), "big") >> (32 - prefix) for address in (left, right)]
    return numbers[0] == numbers[1]
