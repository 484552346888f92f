"""Services with an address: pods reach each other through it, over TCP and UDP, by name and by number."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from tests.node import support
from tests.node.conftest import RunningNode

from torchyard.api.errors import YardError
from torchyard.api.gvr import ENDPOINT_SLICES, SERVICES
from torchyard.node.network import udp_proxy
from torchyard.node.network.connection_limit import ConnectionLimit
from torchyard.node.network.udp_proxy import UdpServicePort

# answers every datagram and every connection with its own name
SERVE = """
import os, socket, threading
def datagrams():
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.bind(("", 7000))
    while True:
        data, sender = link.recvfrom(2048)
        link.sendto(os.environ["HOSTNAME"].encode() + b" " + data, sender)
threading.Thread(target=datagrams, daemon=True).start()
server = socket.create_server(("", 7000), backlog=16)
open("/tmp/ready", "w").close()
while True:
    link, _ = server.accept()
    link.sendall(os.environ["HOSTNAME"].encode())
    link.close()
"""
# one conversation stays with one pod; over several, every pod has its turn
ASK = """
import socket, time
def conversation():
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.connect(("echo", 53))
    link.settimeout(0.5)
    heard = []
    for number in range(2):
        for _ in range(1200):  # a datagram may be lost, a service may not be known yet
            try:
                link.send(str(number).encode())
                while True:
                    name, said = link.recv(100).split()
                    if said == str(number).encode():
                        break
            except OSError:
                time.sleep(0.05)
                continue
            heard.append(name)
            break
    assert len(heard) == 2 and heard[0] == heard[1], heard
    return heard[0]
udp = {conversation() for _ in range(8)}
tcp = set()
for _ in range(8):
    with socket.create_connection(("echo.default.svc.cluster.local", 53), timeout=20) as link:
        tcp.add(link.recv(100))
print(sorted(udp), sorted(tcp))
"""


async def test_a_service_balances_udp_and_tcp_over_its_pods(node: RunningNode) -> None:
    support.need_network()
    ports = [{"name": kind, "port": 53, "targetPort": 7000, "protocol": kind.upper()} for kind in ("udp", "tcp")]
    echo = {"metadata": {"name": "echo"}, "spec": {"selector": {"app": "echo"}, "ports": ports}}
    await node.client.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **echo}, "default")
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    serve = {"name": "main", "image": "python:3", "command": ["python3", "-c", SERVE], "readinessProbe": probe}
    for name in ("a", "b"):
        await node.create(name, {"containers": [serve]}, labels={"app": "echo"})
    for name in ("a", "b"):
        await node.until(name, lambda pod: (pod["status"].get("containerStatuses") or [{}])[0].get("ready"))
    await _both_known(node)
    ask = {"name": "main", "image": "python:3", "command": ["python3", "-c", ASK]}
    await node.create("c", {"restartPolicy": "Never", "containers": [ask]})
    await node.until("c", lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"), seconds=90)
    assert await node.log("c") == "[b'a', b'b'] [b'a', b'b']\n"


async def _both_known(node: RunningNode) -> None:
    for _ in range(1500):
        listed = (await node.client.list(ENDPOINT_SLICES, "default", labels="kubernetes.io/service-name=echo")).items
        ends = [
            end for item in listed for end in item.get("endpoints") or () if (end.get("conditions") or {}).get("ready")
        ]
        if len(ends) == 2:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"the service never had both pods: {listed}")


class UpperCaseServer:
    """A UDP server in this process that replies with the upper-case text."""

    def __init__(self) -> None:
        self.link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.link.bind(("127.0.0.1", 0))
        self.link.setblocking(False)

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data, sender = await loop.sock_recvfrom(self.link, 100)
            await loop.sock_sendto(self.link, data.upper(), sender)

    async def connect(self) -> socket.socket:
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        link.setblocking(False)
        link.connect(self.link.getsockname())
        return link


async def test_an_idle_udp_flow_is_closed_and_the_next_datagram_opens_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(udp_proxy, "IDLE_SECONDS", 0.05)
    loop, pod, opened = asyncio.get_running_loop(), UpperCaseServer(), 0

    async def open_endpoint(_client: str) -> socket.socket:
        nonlocal opened
        opened += 1
        if opened == 2:
            raise YardError("no ready pods")  # UDP loses the datagram
        return await pod.connect()

    serving = loop.create_task(pod.serve())
    transport, service_port = await loop.create_datagram_endpoint(
        lambda: UdpServicePort(open_endpoint, ConnectionLimit()), ("127.0.0.1", 0)
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.connect(transport.get_extra_info("sockname"))
        for wanted in (1, 2, 3):
            client.send(b"hello")
            if wanted != 2:
                async with asyncio.timeout(20):
                    assert await loop.sock_recv(client, 100) == b"HELLO"
            async with asyncio.timeout(20):
                while opened < wanted or service_port._flows:
                    await asyncio.sleep(0.01)
            assert opened == wanted
    transport.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    pod.link.close()
