"""Which pods are behind a service, and their readiness."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.core.service.slices import HEADLESS, SERVICE_NAME, SLICE_SIZE, desired_slices, has_slices


def service(**spec: Any) -> Object:
    ports = [{"name": "a", "port": 80, "targetPort": 8080}]
    metadata = {"name": "web", "namespace": "default", "uid": "u", "labels": {"team": "a"}}
    return {"metadata": metadata, "spec": {"selector": {"app": "web"}, "ports": ports, **spec}}


def pod(
    name: str = "p", *, ready: bool = True, address: str = "10.0.0.1", phase: str = "Running", **more: Any
) -> Object:
    metadata: Object = {"name": name, "namespace": "default", "uid": name, "labels": more.get("labels", {"app": "web"})}
    if more.get("going"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    container = {"name": "c", "ports": [{"name": "http", "containerPort": 9090}]}
    status: Object = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
    if address:
        status["podIP"] = address
    spec = {"containers": [container], "nodeName": "n", **more.get("spec", {})}
    return {"metadata": metadata, "spec": spec, "status": status}


def test_a_ready_pod_is_an_endpoint() -> None:
    (endpoint_slice,) = desired_slices(service(clusterIP="None"), [pod(), pod("other", labels={"app": "db"})])
    assert endpoint_slice["metadata"]["labels"] == {
        "team": "a",
        SERVICE_NAME: "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        HEADLESS: "",
    }
    assert endpoint_slice["addressType"] == "IPv4"
    assert endpoint_slice["ports"] == [{"name": "a", "port": 8080, "protocol": "TCP"}]
    assert endpoint_slice["endpoints"] == [
        {
            "addresses": ["10.0.0.1"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "p"},
            "nodeName": "n",
        }
    ]


@pytest.mark.parametrize(
    ("fields", "publish", "expected"),
    [
        ({}, False, (True, True, False)),
        ({"ready": False}, False, (False, False, False)),
        ({"ready": False}, True, (True, True, False)),
        ({"going": True}, False, (False, True, True)),
    ],
    ids=["ready", "not ready", "published all the same", "going"],
)
def test_endpoint_conditions_follow_the_pod(fields: Object, publish: bool, expected: tuple[bool, bool, bool]) -> None:
    (endpoint_slice,) = desired_slices(service(publishNotReadyAddresses=publish), [pod(**fields)])
    conditions = endpoint_slice["endpoints"][0]["conditions"]
    assert (conditions["ready"], conditions["serving"], conditions["terminating"]) == expected


@pytest.mark.parametrize("fields", [{"address": ""}, {"phase": "Succeeded"}, {"phase": "Failed"}])
def test_pods_without_an_address_and_finished_pods_are_no_endpoints(fields: Object) -> None:
    (endpoint_slice,) = desired_slices(service(), [pod(**fields)])
    assert endpoint_slice["endpoints"] == []


def test_a_port_named_by_name_is_looked_up_in_the_pods() -> None:
    ports = [{"port": 80, "targetPort": "http"}, {"name": "b", "port": 81, "targetPort": "missing"}]
    (endpoint_slice,) = desired_slices(service(ports=ports), [pod()])
    assert endpoint_slice["ports"] == [{"name": "", "port": 9090, "protocol": "TCP"}]


def test_a_pod_of_the_services_subdomain_keeps_its_hostname() -> None:
    (endpoint_slice,) = desired_slices(service(), [pod(spec={"hostname": "first", "subdomain": "web"})])
    assert endpoint_slice["endpoints"][0]["hostname"] == "first"


def test_many_pods_need_several_slices_with_names_of_their_own() -> None:
    slices = desired_slices(service(), [pod(f"p{number}") for number in range(SLICE_SIZE + 1)])
    assert [len(item["endpoints"]) for item in slices] == [SLICE_SIZE, 1]
    assert len({item["metadata"]["name"] for item in slices}) == 2


@pytest.mark.parametrize(
    ("spec", "expected"), [({}, True), ({"selector": None}, False), ({"type": "ExternalName"}, False)]
)
def test_services_without_a_selector_are_the_users_own(spec: Object, expected: bool) -> None:
    assert has_slices(service(**spec)) is expected
