"""EndpointSlices that mirror Endpoints, compared with what kube-controller-manager 1.34 made of the same object."""

from __future__ import annotations

from typing import Any

from torchyard.core.service.mirror import is_mirrored, mirrored_slices
from torchyard.core.service.slices import desired_slices

ENDPOINTS: dict[str, Any] = {
    "metadata": {
        "name": "mir",
        "namespace": "default",
        "uid": "u",
        "labels": {"ep": "label"},
        "annotations": {
            "note": "kept",
            "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    },
    "subsets": [
        {
            "addresses": [{"ip": "10.1.2.3", "hostname": "h", "nodeName": "node1"}, {"ip": "10.1.2.4"}],
            "notReadyAddresses": [{"ip": "10.1.2.5"}],
            "ports": [{"name": "a", "port": 8080, "appProtocol": "http"}, {"name": "b", "port": 1, "protocol": "UDP"}],
        },
        {"addresses": [{"ip": "10.1.2.6"}, {"ip": "fd00::1"}], "ports": [{"name": "a", "port": 9090}]},
    ],
}
SERVICE: dict[str, Any] = {"metadata": {"name": "mir", "namespace": "default", "uid": "s"}, "spec": {}}


def test_each_family_of_each_subset_has_a_slice() -> None:
    slices = mirrored_slices(ENDPOINTS)
    assert [(each["addressType"], each["ports"], each["endpoints"]) for each in slices] == [
        (
            "IPv4",
            [
                {"name": "a", "port": 8080, "protocol": "TCP", "appProtocol": "http"},
                {"name": "b", "port": 1, "protocol": "UDP"},
            ],
            [
                {"addresses": ["10.1.2.3"], "conditions": {"ready": True}, "hostname": "h", "nodeName": "node1"},
                {"addresses": ["10.1.2.4"], "conditions": {"ready": True}},
                {"addresses": ["10.1.2.5"], "conditions": {"ready": False}},
            ],
        ),
        (
            "IPv4",
            [{"name": "a", "port": 9090, "protocol": "TCP"}],
            [{"addresses": ["10.1.2.6"], "conditions": {"ready": True}}],
        ),
        (
            "IPv6",
            [{"name": "a", "port": 9090, "protocol": "TCP"}],
            [{"addresses": ["fd00::1"], "conditions": {"ready": True}}],
        ),
    ]
    for each in slices:
        assert each["metadata"]["annotations"] == {"note": "kept"}
        assert each["metadata"]["labels"] == {
            "ep": "label",
            "kubernetes.io/service-name": "mir",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
        }
    assert len({each["metadata"]["name"] for each in slices}) == 3


def test_subsets_with_the_same_ports_share_a_slice() -> None:
    first, second = {"name": "a", "port": 80}, {"name": "b", "port": 81}
    subsets = [
        {"addresses": [{"ip": "10.1.2.3"}], "ports": [first, second]},
        {"addresses": [{"ip": "10.1.2.4"}], "notReadyAddresses": [{"ip": "10.1.2.3"}], "ports": [second, first]},
        {"addresses": [{"ip": "10.1.2.5"}], "ports": [first]},
    ]
    slices = mirrored_slices({**ENDPOINTS, "subsets": subsets})
    assert [[endpoint["addresses"][0] for endpoint in each["endpoints"]] for each in slices] == [
        ["10.1.2.3", "10.1.2.4"],
        ["10.1.2.5"],
    ]
    assert len({each["metadata"]["name"] for each in slices}) == 2


def test_only_endpoints_of_users_are_mirrored() -> None:
    def endpoints(**metadata: Any) -> dict[str, Any]:
        return {"metadata": {**ENDPOINTS["metadata"], **metadata}}

    assert is_mirrored(ENDPOINTS, SERVICE)
    assert not is_mirrored(ENDPOINTS, None)
    assert not is_mirrored(None, SERVICE)
    assert not is_mirrored(ENDPOINTS, {**SERVICE, "spec": {"selector": {"a": "b"}}})
    assert not is_mirrored(endpoints(labels={"endpointslice.kubernetes.io/skip-mirror": "true"}), SERVICE)
    assert not is_mirrored(endpoints(annotations={"control-plane.alpha.kubernetes.io/leader": "{}"}), SERVICE)


def test_pods_whose_named_port_has_another_number_are_in_another_slice() -> None:
    def pod(name: str, number: int) -> dict[str, Any]:
        ports = [{"name": "http", "containerPort": number}]
        return {
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "main", "ports": ports}]},
            "status": {"podIP": f"10.0.0.{number % 100}", "phase": "Running"},
        }

    spec = {"selector": {"a": "b"}, "ports": [{"name": "web", "port": 80, "targetPort": "http"}]}
    slices = desired_slices({**SERVICE, "spec": spec}, [pod("p1", 8081), pod("p2", 8082), pod("p3", 8081)])
    assert [(each["ports"][0]["port"], len(each["endpoints"])) for each in slices] == [(8081, 2), (8082, 1)]
