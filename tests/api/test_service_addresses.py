"""What carries over and what is dropped when a Service changes, before allocation."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.kinds import STRATEGIES
from torchyard.api.objects import Object
from torchyard.api.service.allocation import needs_cluster_ip, needs_node_ports

SERVICE = STRATEGIES["", "services"]


def service(**spec: Any) -> Object:
    obj = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], **spec}}
    SERVICE.default(obj)
    return obj


@pytest.mark.parametrize(
    ("spec", "address", "ports"),
    [
        ({}, True, False),
        ({"type": "NodePort"}, True, True),
        ({"type": "LoadBalancer"}, True, True),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, True, False),
        ({"type": "ExternalName", "externalName": "a.b"}, False, False),
    ],
)
def test_the_type_of_a_service_determines_what_is_allocated(spec: Object, address: bool, ports: bool) -> None:
    obj = service(**spec)
    assert (needs_cluster_ip(obj), needs_node_ports(obj)) == (address, ports)


def test_omitted_allocated_values_carry_over() -> None:
    old = service(
        type="NodePort", clusterIP="10.96.0.7", clusterIPs=["10.96.0.7"], ports=[{"port": 80, "nodePort": 30007}]
    )
    new = service(type="NodePort")
    SERVICE.prepare_update(new, old)
    assert (new["spec"]["clusterIP"], new["spec"]["clusterIPs"]) == ("10.96.0.7", ["10.96.0.7"])
    assert new["spec"]["ports"][0]["nodePort"] == 30007


def test_changing_to_external_name_releases_the_cluster_ip() -> None:
    old = service(clusterIP="10.96.0.7", clusterIPs=["10.96.0.7"], ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    new = {**old, "spec": {**old["spec"], "type": "ExternalName", "externalName": "a.b"}}
    SERVICE.prepare_update(new, old)
    assert new["spec"].keys().isdisjoint({"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"})


def test_changing_to_cluster_ip_releases_the_node_ports() -> None:
    old = service(
        type="NodePort", clusterIP="10.96.0.7", clusterIPs=["10.96.0.7"], ports=[{"port": 80, "nodePort": 30007}]
    )
    new = service(type="ClusterIP", ports=[{"port": 80, "nodePort": 30007}], externalTrafficPolicy="Cluster")
    SERVICE.prepare_update(new, old)
    assert "nodePort" not in new["spec"]["ports"][0]
    assert "externalTrafficPolicy" not in new["spec"]
    assert SERVICE.validate_update(new, old) == []


def test_a_headless_service_without_a_selector_may_have_both_families() -> None:
    obj = service(clusterIP="None")
    SERVICE.prepare_create(obj)
    assert obj["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    assert SERVICE.validate(obj) == []
