"""Which addresses the node connects to and listens on for users."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest

from torchyard.api import checks
from torchyard.api.errors import StatusError, YardError
from torchyard.api.field_errors import FieldError
from torchyard.api.gvr import ENDPOINT_SLICES, SERVICES
from torchyard.api.objects import Object
from torchyard.apiserver.proxy.location import pod_target, service_target
from torchyard.apiserver.service_network.resolver import ready_endpoints
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.node.events import NodeEventRecorder
from torchyard.node.network.addresses import NetworkSettings, NodeAddresses, listening_addresses
from torchyard.node.network.cluster_services import ClusterServices
from torchyard.node.network.dialer import ClusterDialer
from torchyard.node.network.proxy import ServiceProxy
from torchyard.node.network.service_ports import ListenKey, ServicePort, endpoints_of, host_ports

SPECIAL = ("127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "::ffff:169.254.169.254", "0.0.0.0")


@pytest.mark.parametrize("address", [*SPECIAL, "::ffff:0.0.0.0", "::ffff:224.0.0.1"])
def test_an_endpoint_is_no_address_of_the_machine_alone(address: str) -> None:
    errs: list[FieldError] = []
    checks.non_special_ip(address, "ip", errs)
    assert len(errs) == 1


@pytest.mark.parametrize("address", SPECIAL)
def test_a_pod_with_such_an_address_is_not_proxied_to(address: str) -> None:
    class Lister:
        def get(self, *_names: str) -> Any:
            return {"spec": {"containers": []}, "status": {"podIP": address}}

        def list(self, *_names: str) -> Any:
            return []

    with pytest.raises(StatusError, match="address not allowed"):
        pod_target(Lister(), "default", "p:80")


@pytest.mark.parametrize("port", ["9" * 5000, "65536", "²"])
def test_a_port_that_is_none_is_not_proxied_to(port: str) -> None:
    class Lister:
        def get(self, _group: str, resource: str, *_names: str) -> Any:
            if resource == "endpoints":
                return {}
            return {"spec": {"containers": []}, "status": {"podIP": "10.0.0.1"}}

        def list(self, *_names: str) -> Any:
            return []

    with pytest.raises(StatusError, match="unknown port") as of_pod:
        pod_target(Lister(), "default", f"p:{port}")
    with pytest.raises(StatusError, match=r"no endpoints available|no service port") as of_service:
        service_target(Lister(), "default", f"s:{port}")
    assert of_pod.value.status == of_service.value.status == 503


def test_endpoints_with_names_are_not_resolved() -> None:
    endpoint_slice = {
        "addressType": "FQDN",
        "ports": [{"name": "", "port": 80}],
        "endpoints": [{"addresses": ["localhost"]}],
    }
    assert endpoints_of([endpoint_slice], "") == ()
    assert ready_endpoints([endpoint_slice], "") == []


@pytest.mark.parametrize("host", [*SPECIAL, "localhost"])
@pytest.mark.parametrize("resolves", [False, True])
async def test_the_node_does_not_connect_to_the_machine_itself(host: str, resolves: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(OSError, match=r"not for users|not an IP address"):
            await ClusterDialer(None, NetworkSettings(), resolves=resolves).connect(host, port)


async def test_the_api_server_and_the_nodes_own_address_are_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        api = ClusterDialer(None, NetworkSettings(), api=("127.0.0.1", port))
        (await api.connect("127.0.0.1", port)).close()
        with pytest.raises(OSError, match="not for users"):
            await api.connect("127.0.0.1", port + 1)
        alone = ClusterDialer(None, NetworkSettings(), host_ip="127.0.0.1")  # a machine without a network
        (await alone.connect("127.0.0.1", port)).close()


@pytest.mark.parametrize("host", ["localhost", "é", "a b", "1"])
async def test_a_host_port_is_opened_on_addresses_only(host: str) -> None:
    reasons: list[str] = []
    settings = NetworkSettings()
    proxy = ServiceProxy(None, ClusterDialer(None, settings), failed=lambda _port, reason: reasons.append(reason))
    key = ListenKey("tcp", host, 0, on_machine=True)
    assert not await proxy.update("pod:default/p", [ServicePort(key, (("10.244.0.5", 80),))])
    assert reasons == ["cannot assign requested address"]
    await proxy.close()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0"])
def test_every_spelling_of_any_address_means_those_of_the_node(host: str) -> None:
    pod = {
        "metadata": {"namespace": "default", "name": "p"},
        "spec": {"containers": [{"ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": host}]}]},
        "status": {"podIP": "10.244.0.5", "phase": "Running"},
    }
    assert [port.key.address for port in host_ports(pod, node_addresses=("127.0.0.1",))] == ["127.0.0.1"]


async def test_host_ports_of_running_pods_are_open_again_after_a_restart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    client = cast(Client, None)
    services = ClusterServices(
        NetworkSettings(),
        None,
        Informer(client, SERVICES),
        Informer(client, ENDPOINT_SLICES),
        recorder=cast(NodeEventRecorder, None),
        addresses=NodeAddresses("192.0.2.7", ("127.0.0.1",), None),
        changed=lambda namespaces: None,
    )
    pod: Object = {
        "metadata": {"namespace": "default", "name": "p", "uid": "u"},
        "spec": {"containers": [{"ports": [{"containerPort": 80, "hostPort": port}]}]},
        "status": {"podIP": "10.244.0.5", "phase": "Running"},
    }
    services.pod_changed(pod, is_deleted=False)
    assert services.machine_address(("192.0.2.7", port)) == ("192.0.2.7", port)
    for _ in range(2):
        running = asyncio.create_task(services.run())
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.01)
                    continue
                writer.close()
                break
        # pods reach the port at the node's address, though it is open on loopback alone, and no other port of it
        assert services.machine_address(("192.0.2.7", port)) == ("127.0.0.1", port)
        assert services.machine_address(("192.0.2.7", port + 1)) == ("192.0.2.7", port + 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_ports_are_open_on_loopback_unless_other_addresses_are_named() -> None:
    assert listening_addresses("", "198.51.100.7") == ("127.0.0.1",)
    assert listening_addresses("primary", "198.51.100.7") == ("127.0.0.1", "198.51.100.7")
    assert listening_addresses("198.51.100.0/24, 2001:db8::/32", "198.51.100.7") == ("127.0.0.1", "198.51.100.7")
    with pytest.raises(YardError, match="--node-port-addresses"):
        listening_addresses("example.com", "198.51.100.7")
