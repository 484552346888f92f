"""Cluster names: the table, hosts files, resolver files, and the resolver itself."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, cast

import pytest

from torchyard.api.objects import Object
from torchyard.node.network import dns, names
from torchyard.node.network.addresses import NetworkSettings, PodIPAllocator
from torchyard.node.network.service_ports import ListenKey, host_ports, service_ports
from torchyard.node.network.session_affinity import SessionAffinity


def service(name: str, address: str = "None", **spec: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterIP": address, **spec}}


def slice_of(name: str, *endpoints: Object, ports: list[Object] | None = None) -> Object:
    labels = {"kubernetes.io/service-name": name}
    return {"metadata": {"namespace": "ns", "labels": labels}, "endpoints": list(endpoints), "ports": ports or []}


SERVICES = [service("headless"), service("web", "10.96.0.7", ports=[{"name": "http", "port": 80}])]
SLICES = [
    slice_of("headless", {"addresses": ["10.244.0.5"], "hostname": "pod-0"}, {"addresses": ["10.244.0.6"]}),
    slice_of("headless", {"addresses": ["10.244.0.9"], "conditions": {"ready": False}}),
    slice_of("web", {"addresses": ["10.244.0.7"]}, ports=[{"name": "http", "port": 8080}]),
]


def all_records(services: list[Object], domain: str = "cluster.local") -> names.DnsRecords:
    records: names.DnsRecords = {}
    for each in services:
        records |= names.service_records(each, slices_of(each), domain=domain)
    return records


def slices_of(owner: Object) -> list[Object]:
    return [each for each in SLICES if names.service_of(each) == [f"ns/{owner['metadata']['name']}"]]


def test_dns_records_cover_headless_services_cluster_ips_and_host_names() -> None:
    assert all_records(SERVICES) == {
        "headless.ns.svc.cluster.local": ["10.244.0.5", "10.244.0.6"],
        "pod-0.headless.ns.svc.cluster.local": ["10.244.0.5"],
        "web.ns.svc.cluster.local": ["10.96.0.7"],
    }


def test_a_service_may_publish_pods_that_are_not_ready() -> None:
    eager = [service("headless", publishNotReadyAddresses=True)]
    assert "10.244.0.9" in all_records(eager, "x")["headless.ns.svc.x"]


def test_the_hosts_file_has_every_spelling_of_the_namespaces_services() -> None:
    table = all_records(SERVICES)
    aliases = [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]
    text = names.hosts_file(table, namespace="ns", domain="cluster.local", own=("10.244.0.2", "me"), aliases=aliases)
    assert "10.244.0.2\tme\n" in text
    assert "1.2.3.4\ta\tb\n" in text
    assert "10.96.0.7\tweb\tweb.ns\tweb.ns.svc\tweb.ns.svc.cluster.local\n" in text
    other = names.hosts_file(table, namespace="other", domain="cluster.local", own=("", "me"))
    assert "web" not in other


@pytest.mark.parametrize(
    ("policy", "extra", "expected"),
    [
        ("ClusterFirst", {}, "search ns.svc.d svc.d d\nnameserver 10.96.0.10\noptions ndots:5\n"),
        ("Default", {}, "search home\nnameserver 192.0.2.9\n"),
        ("None", {"nameservers": ["9.9.9.9"], "searches": ["x"]}, "search x\nnameserver 9.9.9.9\n"),
        (
            "ClusterFirst",
            {"options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]},
            "search ns.svc.d svc.d d\nnameserver 10.96.0.10\noptions ndots:2 edns0\n",
        ),
    ],
)
def test_the_resolv_conf_follows_the_pods_policy(policy: str, extra: Object, expected: str) -> None:
    machine = "search home\nnameserver 192.0.2.9\n"
    text = names.resolv_conf(
        namespace="ns", domain="d", server="10.96.0.10", policy=policy, extra=extra, machine=machine
    )
    assert text == expected


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


@pytest.mark.parametrize(
    ("name", "kind", "code", "addresses"),
    [
        ("web.ns.svc.cluster.local", 1, 0, ["10.96.0.7"]),
        ("WEB.ns.svc.cluster.local", 1, 0, ["10.96.0.7"]),
        ("headless.ns.svc.cluster.local", 1, 0, ["10.244.0.5", "10.244.0.6"]),
        ("web.ns.svc.cluster.local", 28, 0, []),
        ("none.ns.svc.cluster.local", 1, 3, []),
        ("7.0.96.10.in-addr.arpa", 12, 3, []),
        ("example.com", 1, 3, []),
    ],
)
async def test_the_dns_server_answers_from_its_records(name: str, kind: int, code: int, addresses: list[str]) -> None:
    table = all_records(SERVICES)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: dns.DnsServer(lambda: table, domain="cluster.local", upstream=[]), local_addr=("127.0.0.1", 0)
    )
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.setblocking(False)
    client.connect(transport.get_extra_info("sockname"))
    await loop.sock_sendall(client, query(name, kind))
    async with asyncio.timeout(5):
        answer = await loop.sock_recv(client, 4096)
    client.close()
    transport.close()
    number, flags, _, count = struct.unpack_from("!HHHH", answer)
    assert (number, flags & 0xF, count) == (7, code, len(addresses))
    assert [socket.inet_ntoa(answer[-16 * (count - i) + 12 :][:4]) for i in range(count)] == addresses


class LossyServer(asyncio.DatagramProtocol):
    """A server of the machine that loses the first question."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.heard.append(data)
        if len(self.heard) > 1:
            self.transport.sendto(b"the answer", addr)


async def test_a_lost_upstream_query_is_repeated() -> None:
    loop = asyncio.get_running_loop()
    outside, server = await loop.create_datagram_endpoint(LossyServer, local_addr=("127.0.0.1", 0))
    port = outside.get_extra_info("sockname")[1]
    transport, _ = await loop.create_datagram_endpoint(
        lambda: dns.DnsServer(dict, domain="cluster.local", upstream=["127.0.0.1"], port=port),
        local_addr=("127.0.0.1", 0),
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.connect(transport.get_extra_info("sockname"))
        await loop.sock_sendall(client, query("example.com", 1))
        async with asyncio.timeout(60):
            assert await loop.sock_recv(client, 4096) == b"the answer"
    assert set(server.heard) == {query("example.com", 1)}
    transport.close()
    outside.close()


async def test_malformed_packets_are_ignored() -> None:
    resolver = dns.DnsServer(dict, domain="d", upstream=[])
    for packet in (b"", b"\0" * 12, b"\xff" * 40):
        resolver.datagram_received(packet, ("127.0.0.1", 1))


def test_service_ports_have_the_endpoints_of_their_pods() -> None:
    headless, web = (service_ports(each, slices_of(each)) for each in SERVICES)
    assert headless == []
    assert [(port.key, port.endpoints) for port in web] == [
        (ListenKey("tcp", "10.96.0.7", 80), (("10.244.0.7", 8080),))
    ]


def test_tcp_and_udp_may_share_a_port_number() -> None:
    ports = [{"name": name, "port": 53, "protocol": name.upper()} for name in ("udp", "tcp", "sctp")]
    names_service = service("names", "10.96.0.9", ports=ports)
    pods = [
        slice_of("names", {"addresses": ["10.244.0.3"]}, ports=[{"name": port["name"], "port": 5353} for port in ports])
    ]
    goal = (("10.244.0.3", 5353),)
    assert [(port.key, port.endpoints) for port in service_ports(names_service, pods)] == [
        (ListenKey("udp", "10.96.0.9", 53), goal),
        (ListenKey("tcp", "10.96.0.9", 53), goal),
    ]


def test_node_ports_and_host_ports_are_served_on_the_addresses_of_the_node() -> None:
    web = service("web", "10.96.0.9", ports=[{"port": 80, "nodePort": 30080}])
    ports = service_ports(web, [], node_addresses=("127.0.0.1", "192.0.2.7"))
    assert [port.key for port in ports] == [
        ListenKey("tcp", "10.96.0.9", 80),
        ListenKey("tcp", "127.0.0.1", 30080, on_machine=True),
        ListenKey("tcp", "192.0.2.7", 30080, on_machine=True),
    ]
    container_ports = [
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 53, "hostPort": 53, "hostIP": "192.0.2.9", "protocol": "UDP"},
        {"containerPort": 81},
    ]
    pod: dict[str, Any] = {
        "metadata": {"namespace": "default", "name": "p"},
        "spec": {"containers": [{"name": "main", "ports": container_ports}]},
        "status": {"podIP": "10.244.0.5", "phase": "Running"},
    }
    assert [(port.key, port.endpoints) for port in host_ports(pod, node_addresses=("127.0.0.1",))] == [
        (ListenKey("tcp", "127.0.0.1", 8080, on_machine=True), (("10.244.0.5", 80),)),
        (ListenKey("udp", "192.0.2.9", 53, on_machine=True), (("10.244.0.5", 53),)),
    ]
    pod["status"]["phase"] = "Succeeded"
    assert host_ports(pod, node_addresses=("127.0.0.1",)) == []


def test_terminating_endpoints_serve_while_none_is_ready() -> None:
    def endpoint(address: str, **conditions: bool) -> dict[str, Any]:
        return {"addresses": [address], "conditions": conditions}

    going = endpoint("10.244.0.3", ready=False, serving=True, terminating=True)
    gone = endpoint("10.244.0.4", ready=False, serving=False, terminating=True)
    ready = endpoint("10.244.0.5", ready=True)
    web = service("web", "10.96.0.9", ports=[{"port": 80}])
    number = [{"port": 8080}]
    assert service_ports(web, [slice_of("web", going, gone, ports=number)])[0].endpoints == (("10.244.0.3", 8080),)
    both = [slice_of("web", going, gone, ports=number), slice_of("web", ready, ports=number)]
    assert service_ports(web, both)[0].endpoints == (("10.244.0.5", 8080),)


def test_a_client_keeps_its_endpoint_until_it_is_idle_for_too_long() -> None:
    now = 0.0
    affinity = SessionAffinity(lambda: now)
    endpoints = (("a", 1), ("b", 1))
    assert affinity.get("client", 10, endpoints) is None
    affinity.put("client", endpoints[1])
    now = 9.0
    assert affinity.get("client", 10, endpoints) == endpoints[1]
    assert affinity.get("client", 10, endpoints[:1]) is None
    now = 10.0
    assert affinity.get("client", 10, endpoints) is None


async def test_an_external_name_is_answered_with_an_alias_and_its_addresses() -> None:
    resolver = dns.DnsServer(
        lambda: {"web.default.svc.cluster.local": ["10.96.0.7"]},
        domain="cluster.local",
        upstream=[],
        aliases=lambda: {
            "inside.default.svc.cluster.local": "web.default.svc.cluster.local",
            "outside.default.svc.cluster.local": "localhost",
        },
    )
    alias = await resolver.alias_answer(query("inside.default.svc.cluster.local", 1))
    assert alias is not None and alias.endswith(bytes([10, 96, 0, 7]))
    assert alias[6:8] == b"\0\2"  # the alias and its address
    outside = await resolver.alias_answer(query("outside.default.svc.cluster.local", 1))
    assert outside is not None and b"\x09localhost\0" in outside and bytes([127, 0, 0, 1]) in outside
    assert await resolver.alias_answer(query("web.default.svc.cluster.local", 1)) is None


def test_pod_addresses_are_allocated_once_and_not_reused_at_once() -> None:
    addresses = PodIPAllocator(NetworkSettings(pods="10.1.0.0/29"), [])
    taken = [addresses.allocate() for _ in range(5)]
    assert len(set(taken)) == 5
    assert "10.1.0.1" not in taken, "that is the gateway"
    addresses.release(taken[0])
    assert addresses.allocate() == taken[0]
    with pytest.raises(Exception, match="no free pod address"):
        addresses.allocate()
