"""A machine with a network of pods, and another machine beside it, each in a network namespace of its own.

Run in a network namespace that may be changed; the argument is an empty directory. Prints what was reached, as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from torchyard.api.errors import YardError
from torchyard.node.network import pod_routes
from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.shim import linux, netlink, records

PORT, SECONDS = 7, 0.2
POD, SERVICE, OTHER = "10.244.0.5", "10.96.0.10", "192.0.2.2"
_received: list[str] = []


def serve(host: str) -> None:
    """Answer connections and datagrams with the address of the client."""
    connections = socket.create_server((host, PORT))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((host, PORT))

    def accept() -> None:
        while True:
            client, address = connections.accept()
            client.sendall(address[0].encode())
            client.close()

    def receive() -> None:
        while True:
            data, address = datagrams.recvfrom(100)
            _received.append(data.decode())
            datagrams.sendto(address[0].encode(), address)

    for task in (accept, receive):
        threading.Thread(target=task, daemon=True).start()


def received() -> list[str]:
    return _received


def connect(host: str) -> str:
    try:
        with socket.create_connection((host, PORT), timeout=SECONDS) as connection:
            return connection.recv(100).decode()
    except OSError as error:
        return type(error).__name__


def ask(host: str, text: str) -> str:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(SECONDS)
            client.sendto(text.encode(), (host, PORT))
            return client.recv(100).decode()
    except OSError as error:
        return type(error).__name__


def send(host: str, text: str, source: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind((source, 0))
        client.sendto(text.encode(), (host, PORT))


def add_interface(name: str, address: str, prefix: int, gateway: str = "") -> None:
    netlink.add_address(name, address, prefix)
    netlink.link_up(name)
    if gateway:
        netlink.add_default_route(gateway)


def add_bridge() -> None:
    netlink.add_bridge("yard0")
    add_interface("yard0", "10.244.0.1", 24)
    netlink.add_local_route("10.96.0.0", 16)


def attach(pid: int) -> None:
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    netlink.add_veth("pod", "eth0", peer_namespace=namespace, bridge="yard0")


class Namespace:
    """A process in a network namespace of its own that calls this module's functions."""

    def __init__(self) -> None:
        requests, self._requests = os.pipe()
        replies, self._replies = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            linux.unshare(linux.NEWNET)
            netlink.link_up("lo")
            os.write(self._replies, b"null\n")
            with os.fdopen(requests) as lines:
                for line in lines:
                    name, *arguments = json.loads(line)
                    os.write(self._replies, json.dumps(globals()[name](*arguments)).encode() + b"\n")
            os._exit(0)
        self._lines = os.fdopen(replies)
        self._lines.readline()

    def call(self, name: str, *arguments: object) -> Any:
        os.write(self._requests, json.dumps([name, *arguments]).encode() + b"\n")
        return json.loads(self._lines.readline())

    def record(self, root: Path) -> None:
        """Be the namespace holder of the plane in this directory."""
        root.mkdir(exist_ok=True)
        records.write(str(root / "namespaces.json"), {"pid": self.pid, "startedAt": 0.0})


def refusal(root: Path) -> str:
    try:
        pod_routes.connect(root, NetworkSettings().for_namespace_holder())
    except YardError as error:
        return error.message
    return ""


def build(holder: Namespace, pod: Namespace, other: Namespace) -> None:
    netlink.link_up("lo")
    holder.call("add_bridge")
    holder.call("serve", SERVICE)
    holder.call("attach", pod.pid)
    pod.call("add_interface", "eth0", POD, 24, "10.244.0.1")
    pod.call("serve", "")
    # The other machine sends what is for the pods to this one, which forwards packets and checks no sources.
    netlink.add_veth("lan", "lan", peer_namespace=os.open(f"/proc/{other.pid}/ns/net", os.O_RDONLY))
    add_interface("lan", "192.0.2.1", 24)
    other.call("add_interface", "lan", OTHER, 24, "192.0.2.1")
    other.call("serve", OTHER)
    for address in ("169.254.244.0", "169.254.244.1", "10.244.0.9"):
        other.call("add_interface", "lo", address, 32)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    for name in ("all", "lan"):
        Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0")


def main(root: Path) -> dict[str, object]:
    holder, pod, other = namespaces = Namespace(), Namespace(), Namespace()
    try:
        build(holder, pod, other)
        plane, second = root / "plane", root / "second"
        holder.record(plane)
        other.record(second)
        result: dict[str, object] = {"before": connect(POD)}
        # The second time is as after a restart of the plane.
        result["refused"] = [refusal(plane), refusal(plane), refusal(second)]
        result["machine"] = [connect(POD), ask(POD, "machine"), connect(SERVICE), ask(SERVICE, "machine")]
        result["machine to other"] = connect(OTHER)
        result["pod to other"] = [pod.call("connect", OTHER), pod.call("ask", OTHER, "pod")]
        result["other"] = [other.call("connect", POD), other.call("connect", SERVICE)]
        for host in (POD, SERVICE):
            for source in ("", "169.254.244.0", "169.254.244.1", "10.244.0.9"):
                other.call("send", host, "other", source)
            ask(host, "last")
        result["received"] = [pod.call("received"), holder.call("received")]
        pod_routes.disconnect(second)  # has none
        result["second disconnected"] = connect(POD)
        pod_routes.disconnect(plane)
        result["disconnected"] = connect(POD)
        netlink.add_route("10.0.0.0", 8, gateway=OTHER, source="192.0.2.1")
        result["route taken"] = refusal(plane)
        result["links"] = sorted(name for _, name in socket.if_nameindex())
        return result
    finally:
        for namespace in namespaces:
            os.kill(namespace.pid, 9)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))), flush=True)
