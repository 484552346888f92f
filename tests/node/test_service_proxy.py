"""Which owner has a port of the machine that several want, and how often a port that fails is tried."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import cast

import pytest
from tests.node.test_node_ports import free_port
from tests.support.waiting import first_answer

from torchyard.api.gvr import ENDPOINT_SLICES, SERVICES
from torchyard.api.objects import Object
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.node.events import NodeEventRecorder
from torchyard.node.network import cluster_services
from torchyard.node.network.addresses import NetworkSettings, NodeAddresses
from torchyard.node.network.cluster_services import ClusterServices
from torchyard.node.network.dialer import ClusterDialer
from torchyard.node.network.proxy import ServiceProxy
from torchyard.node.network.service_ports import ListenKey, ServicePort

HOST = "127.0.0.1"


async def test_a_port_stays_with_its_owner_until_it_is_freed() -> None:
    failures: list[tuple[str, str]] = []
    freed: list[str] = []
    proxy = ServiceProxy(
        None,
        ClusterDialer(None, NetworkSettings(), host_ip=HOST),
        failed=lambda port, reason: failures.append((port.owner, reason)),
        freed=freed.append,
    )
    backends = {owner: await _backend(owner) for owner in ("default/web", "pod:default/a")}
    key = ListenKey("tcp", HOST, free_port(), on_machine=True)
    ports = {owner: [ServicePort(key, ((HOST, _port(server)),), owner)] for owner, server in backends.items()}
    try:
        assert await proxy.update("default/web", ports["default/web"])
        assert await proxy.update("pod:default/a", ports["pod:default/a"])
        assert failures == [("pod:default/a", "in use by default/web")]
        assert await _ask(key.port) == "default/web"
        assert await proxy.update("pod:default/a", [])  # the pod has ended
        assert await _ask(key.port) == "default/web"
        assert not freed

        assert await proxy.update("pod:default/a", ports["pod:default/a"])
        assert await proxy.update("default/web", [])
        assert freed == ["pod:default/a"]
        assert await proxy.update("pod:default/a", ports["pod:default/a"])
        assert await _ask(key.port) == "pod:default/a"
    finally:
        await proxy.close()
        for server in backends.values():
            server.close()


async def test_a_port_that_fails_is_tried_again_without_holding_up_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The interval never ends here: other ports are served meanwhile, and the log has one line."""
    monkeypatch.setattr(cluster_services, "_MIN_RETRY_SECONDS", 3600.0)
    events: list[str] = []
    services = _services(events)
    taken, free = free_port(), free_port()
    with socket.create_server((HOST, taken)), caplog.at_level(logging.WARNING):
        services.pod_changed(_pod("a", taken), is_deleted=False)
        task = asyncio.create_task(services.run())
        try:
            await first_answer(lambda: _is(bool(events)), "the event")
            services.pod_changed(_pod("b", free), is_deleted=False)
            await first_answer(lambda: _is_open(free), "the second port")
            services.pod_changed(_pod("a", taken, address="127.0.0.2"), is_deleted=False)  # fails once more
            services.pod_changed(_pod("c", another := free_port()), is_deleted=False)
            await first_answer(lambda: _is_open(another), "the third port")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert len(events) == 1
    assert caplog.text.count("cannot listen") == 1


async def test_a_port_that_becomes_free_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_services, "_MIN_RETRY_SECONDS", 0.01)
    events: list[str] = []
    services, port = _services(events), free_port()
    services.pod_changed(_pod("a", port), is_deleted=False)
    server = socket.create_server((HOST, port))
    task = asyncio.create_task(services.run())
    try:
        await first_answer(lambda: _is(bool(events)), "the event")
        server.close()
        await first_answer(lambda: _is_open(port), "the port")
    finally:
        server.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Recorder:
    def __init__(self, events: list[str]) -> None:
        self._events = events

    def warn(self, _obj: Object, _reason: str, message: str) -> None:
        self._events.append(message)


def _services(events: list[str]) -> ClusterServices:
    return ClusterServices(
        NetworkSettings(),
        None,
        Informer(cast(Client, None), SERVICES),  # neither of them runs
        Informer(cast(Client, None), ENDPOINT_SLICES),
        recorder=cast(NodeEventRecorder, _Recorder(events)),
        addresses=NodeAddresses(HOST, (HOST,), None),
        changed=lambda _namespaces: None,
    )


def _pod(name: str, host_port: int, *, address: str = HOST) -> Object:
    port = {"containerPort": 7000, "hostPort": host_port, "hostIP": HOST}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "main", "ports": [port]}]},
        "status": {"phase": "Running", "podIP": address},
    }


async def _is(condition: bool) -> bool:
    return condition


async def _is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    return True


async def _backend(answer: str) -> asyncio.Server:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer.encode())
        writer.close()

    return await asyncio.start_server(serve, HOST, 0)


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def _ask(port: int) -> str:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()
