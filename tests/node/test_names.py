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
from torchyard.node.network.proxy import ServicePort, service_ports


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
    assert web == [ServicePort("tcp", "10.96.0.7", 80, (("10.244.0.7", 8080),))]


def test_tcp_and_udp_may_share_a_port_number() -> None:
    ports = [{"name": name, "port": 53, "protocol": name.upper()} for name in ("udp", "tcp", "sctp")]
    names_service = service("names", "10.96.0.9", ports=ports)
    pods = [
        slice_of("names", {"addresses": ["10.244.0.3"]}, ports=[{"name": port["name"], "port": 5353} for port in ports])
    ]
    goal = (("10.244.0.3", 5353),)
    assert service_ports(names_service, pods) == [
        ServicePort("udp", "10.96.0.9", 53, goal),
        ServicePort("tcp", "10.96.0.9", 53, goal),
    ]


def test_pod_addresses_are_allocated_once_and_not_reused_at_once() -> None:
    addresses = PodIPAllocator(NetworkSettings(pods="10.1.0.0/29"), [])
    taken = [addresses.allocate() for _ in range(5)]
    assert len(set(taken)) == 5
    assert "10.1.0.1" not in taken, "that is the gateway"
    addresses.release(taken[0])
    assert addresses.allocate() == taken[0]
    with pytest.raises(Exception, match="no free pod address"):
        addresses.allocate()
