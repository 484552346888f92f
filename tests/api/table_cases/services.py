"""Services, endpoints, ingresses, network policies."""

from __future__ import annotations

from typing import Any

from tests.api.table_cases.base import EXPRESSIONS

from torchyard.api.objects import Object


def service(name: str, *, status: Object | None = None, **spec: Any) -> Object:
    obj: Object = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
    return {**obj, "status": status} if status else obj


PORTS = [{"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"}]
SERVICES = [
    service("plain", selector={"b": "2", "a": "1"}, ports=PORTS),
    service("headless", clusterIP="None", ports=[]),
    service("external-ips", externalIPs=["1.2.3.4", "1.2.3.5"]),
    service("node-port", type="NodePort", ports=[{"port": 80, "nodePort": 30080}]),
    service("pending", type="LoadBalancer", allocateLoadBalancerNodePorts=False),
    service(
        "balanced",
        type="LoadBalancer",
        allocateLoadBalancerNodePorts=False,
        externalIPs=["5.6.7.8"],
        status={"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "a-very-long-host-name.example.com"}]}},
    ),
    service("named", type="ExternalName", externalName="db.example.com", ports=[]),
]
ADDRESSES = [{"ip": f"10.0.0.{number}"} for number in range(1, 5)]
ENDPOINTS: list[Object] = [
    {"metadata": {"name": "empty"}},
    {"metadata": {"name": "none"}, "subsets": [{"notReadyAddresses": ADDRESSES[:1], "ports": [{"port": 80}]}]},
    {"metadata": {"name": "two"}, "subsets": [{"addresses": ADDRESSES[:2], "ports": [{"port": 80}]}]},
    {"metadata": {"name": "many"}, "subsets": [{"addresses": ADDRESSES, "ports": PORTS}]},
    {"metadata": {"name": "portless"}, "subsets": [{"addresses": [*ADDRESSES[:1], {"ip": "fd00::1"}]}]},
    {"metadata": {"name": "six"}, "subsets": [{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 80}]}]},
]
ENDPOINT_SLICES: list[Object] = [
    {"metadata": {"name": "empty"}, "addressType": "IPv4", "endpoints": []},
    {
        "metadata": {"name": "some"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}],
        "ports": [{"name": "http", "port": 80}, {"name": "any"}],
    },
    {
        "metadata": {"name": "many"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address["ip"]]} for address in ADDRESSES],
        "ports": [{"name": f"p{number}", "port": number} for number in range(1, 6)],
    },
]


def backend() -> Object:
    return {"service": {"name": "s", "port": {"number": 80}}}


def rule(host: str = "") -> Object:
    obj: Object = {"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend()}]}}
    return {**obj, "host": host} if host else obj


INGRESSES: list[Object] = [
    {"metadata": {"name": "plain"}, "spec": {"defaultBackend": backend()}},
    {
        "metadata": {"name": "rich"},
        "spec": {
            "ingressClassName": "nginx",
            "rules": [rule(f"h{number}.example.com") for number in range(5)],
            "tls": [{"hosts": ["h0.example.com"]}],
        },
        "status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}, {"ip": "1.2.3.4"}]}},
    },
    {"metadata": {"name": "any"}, "spec": {"rules": [rule()]}},
]
NETWORKING: dict[str, list[Object]] = {
    "ingressclasses": [
        {"metadata": {"name": "plain"}, "spec": {"controller": "example.com/a"}},
        {
            "metadata": {"name": "rich"},
            "spec": {
                "controller": "example.com/a",
                "parameters": {"apiGroup": "example.com", "kind": "Config", "name": "c", "scope": "Cluster"},
            },
        },
        {
            "metadata": {"name": "core"},
            "spec": {
                "controller": "example.com/a",
                "parameters": {"kind": "ConfigMap", "name": "c", "scope": "Namespace", "namespace": "x"},
            },
        },
    ],
    "ipaddresses": [
        {
            "metadata": {"name": "10.96.200.1"},
            "spec": {"parentRef": {"resource": "services", "namespace": "x", "name": "s"}},
        },
        {
            "metadata": {"name": "10.96.200.2"},
            "spec": {"parentRef": {"group": "example.com", "resource": "foos", "name": "s"}},
        },
    ],
    "servicecidrs": [{"metadata": {"name": "extra"}, "spec": {"cidrs": ["10.200.0.0/24", "fd00:1::/108"]}}],
}
NETWORK_POLICIES: list[Object] = [
    {"metadata": {"name": "all"}, "spec": {"podSelector": {}}},
    {"metadata": {"name": "some"}, "spec": {"podSelector": EXPRESSIONS}},
]
