"""Ports of the machine: node ports, host ports, session affinity, and Services that change their type."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from tests.node import support
from tests.node.conftest import RunningNode
from tests.node.test_services import SERVE

from torchyard.api.gvr import PODS, SERVICES
from torchyard.api.objects import Object

PROBE = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def start(node: RunningNode, name: str, **more: Any) -> None:
    container = {"name": "main", "image": "python:3", "command": ["python3", "-c", SERVE], "readinessProbe": PROBE}
    spec = {key: value for key, value in more.items() if key != "ports"}
    container |= {"ports": more["ports"]} if "ports" in more else {}
    await node.create(name, {"containers": [container], **spec}, labels={"app": "echo"})
    await node.until(name, lambda pod: (pod["status"].get("containerStatuses") or [{}])[0].get("ready"))


async def ask(port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> str:
    """The pod that answers, or how the connection failed."""

    def answer() -> str:
        with socket.socket(socket.AF_INET, kind) as link:
            link.settimeout(2)
            try:
                link.connect(("127.0.0.1", port))
                if kind == socket.SOCK_DGRAM:
                    link.send(b"hello")
                return link.recv(100).decode() or "closed"
            except OSError as error:
                return type(error).__name__

    return await asyncio.to_thread(answer)


async def until_answers(port: int, *expected: str) -> None:
    """Each of these answers, and no other, comes in ten attempts in a row."""
    for _ in range(1200):
        answers = {await ask(port) for _ in range(10 if len(expected) > 1 else 4)}
        if answers == set(expected):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"port {port}: {answers}, expected {expected}")


async def change(node: RunningNode, **spec: Any) -> Object:
    return await node.client.patch(SERVICES, "echo", {"spec": spec}, "default")


ASK_INSIDE = """
import socket, sys
host, tcp, udp = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with socket.create_connection((host, tcp), timeout=20) as link:
    print(link.recv(100).decode())
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
    link.settimeout(1)
    for _ in range(20):
        link.sendto(b"hello", (host, udp))
        try:
            print(link.recv(100).decode().split()[0])
            break
        except TimeoutError:
            continue
"""


async def ask_from_a_pod(node: RunningNode, tcp: int, udp: int) -> None:
    """Pods reach node ports at the node's address, whether or not connections to the outside work."""
    assert node.plane.agent is not None
    host = node.plane.agent.context.host_ip
    if host.startswith("127."):
        return  # of a machine without a network; a pod has its own loopback
    command = ["python3", "-c", ASK_INSIDE, host, str(tcp), str(udp)]
    await node.create(
        "inside", {"restartPolicy": "Never", "containers": [{"name": "main", "image": "python:3", "command": command}]}
    )
    await node.phase("inside", "Succeeded", seconds=60)
    answers = (await node.log("inside")).split()
    assert len(answers) == 2
    assert set(answers) <= {"a", "b"}


async def test_a_node_port_leads_to_the_pods_of_its_service(node: RunningNode) -> None:
    support.need_network()
    for name in ("a", "b"):
        await start(node, name)
    ports = [
        {"name": "tcp", "port": 80, "targetPort": 7000},
        {"name": "udp", "port": 80, "targetPort": 7000, "protocol": "UDP"},
    ]
    spec = {"type": "NodePort", "selector": {"app": "echo"}, "ports": ports}
    echo = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo"}, "spec": spec}
    created = await node.client.create(SERVICES, echo, "default")
    tcp, udp = (port["nodePort"] for port in created["spec"]["ports"])
    await until_answers(tcp, "a", "b")
    assert (await ask(udp, socket.SOCK_DGRAM)).split()[0] in ("a", "b")

    await ask_from_a_pod(node, tcp, udp)

    await change(node, sessionAffinity="ClientIP")
    for _ in range(200):
        if len({await ask(tcp) for _ in range(6)}) == 1:
            break
    first = await ask(tcp)
    assert {await ask(tcp) for _ in range(10)} == {first}
    await node.client.delete(PODS, first, "default")
    await until_answers(tcp, ({"a", "b"} - {first}).pop())

    await change(node, type="ClusterIP")
    await until_answers(tcp, "ConnectionRefusedError")
    await change(node, type="ExternalName", externalName="localhost", clusterIP=None)
    look = 'import socket; print(socket.gethostbyname("echo"))'
    resolve = {"name": "main", "image": "python:3", "command": ["python3", "-c", look]}
    await node.create("resolve", {"restartPolicy": "Never", "containers": [resolve]})
    await node.phase("resolve", "Succeeded")
    assert await node.log("resolve") == "127.0.0.1\n"


async def test_a_host_port_leads_to_its_pod_and_one_that_is_taken_gives_an_event(node: RunningNode) -> None:
    support.need_network()
    host_port, taken = free_port(), free_port()
    with socket.create_server(("127.0.0.1", taken)):
        ports = [{"containerPort": 7000, "hostPort": host_port, "hostIP": "127.0.0.1"}]
        ports.append({"containerPort": 7001, "hostPort": taken, "hostIP": "127.0.0.1"})
        await start(node, "direct", ports=ports)
        await until_answers(host_port, "direct")
        for _ in range(1200):
            messages = await node.messages("direct")
            if "PortNotServed" in messages:
                break
            await asyncio.sleep(0.05)
        assert f"cannot listen on tcp port {taken} of 127.0.0.1: address already in use" in messages["PortNotServed"]
        # the scheduler is not asked, and the node refuses a second pod with the port
        port = {"containerPort": 7000, "hostPort": host_port, "hostIP": "127.0.0.1"}
        await node.script("second", "sleep 600", container={"ports": [port]})
        second = await node.phase("second", "Failed")
        assert second["status"]["reason"] == "NodePorts"
        predicate = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
        assert second["status"]["message"] == f"Pod was rejected: {predicate}"
    await node.client.delete(PODS, "direct", "default")
    await until_answers(host_port, "ConnectionRefusedError")
