"""ServiceCIDRs and IPAddresses: which addresses Services get, and who has them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.objects import Space
from tests.support.http import Client
from tests.support.waiting import eventually

CIDRS, ADDRESSES = (f"/apis/networking.k8s.io/v1/{plural}" for plural in ("servicecidrs", "ipaddresses"))
OUTSIDE = "the provided network does not match the current range"


def service(space: Space, name: str, **spec: Any) -> Any:
    body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
    return space.api.post(space.path("services"), body)


def ready(api: Client, name: str) -> Any:
    conditions = api.get(f"{CIDRS}/{name}").json.get("status", {}).get("conditions") or [{}]
    return {key: conditions[0].get(key) for key in ("type", "status", "reason", "message")}


def test_the_range_of_the_server_is_a_servicecidr(api: Client) -> None:
    message = "Kubernetes Service CIDR is ready"
    is_ready = {"type": "Ready", "status": "True", "reason": "", "message": message}
    eventually(lambda: ready(api, "kubernetes") == is_ready, "the condition Ready")
    own = api.get(f"{CIDRS}/kubernetes").json
    assert own["spec"] == {"cidrs": ["10.96.0.0/16"]}
    assert own["metadata"]["finalizers"] == ["networking.k8s.io/service-cidr-finalizer"]
    eventually(lambda: api.get(f"{ADDRESSES}/10.96.0.1").status == 200, "the address of the Service kubernetes")
    parent = api.get(f"{ADDRESSES}/10.96.0.1").json["spec"]["parentRef"]
    assert parent == {"resource": "services", "namespace": "default", "name": "kubernetes"}


def test_a_service_has_an_ipaddress_while_it_has_a_cluster_ip(space: Space) -> None:
    api = space.api
    address = service(space, "a").json["spec"]["clusterIP"]
    eventually(lambda: api.get(f"{ADDRESSES}/{address}").status == 200, "the IPAddress")
    labels = api.get(f"{ADDRESSES}/{address}").json["metadata"]["labels"]
    assert labels == {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    obj = api.get(space.path("services", "a")).json
    api.put(space.path("services", "a"), {**obj, "spec": {"type": "ExternalName", "externalName": "a.b"}})
    eventually(lambda: api.get(f"{ADDRESSES}/{address}").status == 404, "the address is free")
    service(space, "headless", clusterIP="None")
    other = service(space, "b").json["spec"]["clusterIP"]
    eventually(lambda: api.get(f"{ADDRESSES}/{other}").status == 200, "the IPAddress")
    api.delete(space.path("services", "b"))
    eventually(lambda: api.get(f"{ADDRESSES}/{other}").status == 404, "the address is free")


def test_addresses_come_from_every_ready_range(space: Space) -> None:
    api = space.api
    name = space.name
    refused = service(space, "early", clusterIP="10.98.7.5")
    assert refused.message.endswith(f"failed to allocate IP 10.98.7.5: {OUTSIDE}")
    assert api.post(CIDRS, {"metadata": {"name": name}, "spec": {"cidrs": ["10.98.7.0/29"]}}).status == 201
    eventually(lambda: ready(api, name)["status"] == "True", "the range is ready")
    eventually(lambda: service(space, "a", clusterIP="10.98.7.5").status == 201, "the range is used")
    taken = service(space, "b", clusterIP="10.98.7.5")
    assert taken.message.endswith("failed to allocate IP 10.98.7.5: provided IP is already allocated")
    for address in ("10.98.7.0", "10.98.7.7"):
        assert service(space, "b", clusterIP=address).message.endswith(OUTSIDE)
    changed = {**api.get(f"{CIDRS}/{name}").json, "spec": {"cidrs": ["10.98.8.0/29"]}}
    assert api.put(f"{CIDRS}/{name}", changed).message.endswith(
        'spec.cidrs[0]: Invalid value: "10.98.8.0/29": field is immutable'
    )
    api.delete(f"{CIDRS}/{name}")
    eventually(lambda: ready(api, name)["reason"] == "Terminating", "the range is terminating")
    assert ready(api, name)["message"].startswith("There are still IPAddresses referencing the ServiceCIDR")
    eventually(lambda: service(space, "late", clusterIP="10.98.7.6").status == 422, "the range is not used any more")
    api.delete(space.path("services", "a"))


def test_an_ipaddress_of_a_user_reserves_its_address(space: Space) -> None:
    parent = {"resource": "services", "namespace": space.name, "name": "x"}
    address = "10.96.77.77"
    created = space.api.post(ADDRESSES, {"metadata": {"name": address}, "spec": {"parentRef": parent}})
    assert created.status == 201, created
    refused = service(space, "a", clusterIP=address)
    assert refused.message.endswith(f"failed to allocate IP {address}: provided IP is already allocated")
    space.api.delete(f"{ADDRESSES}/{address}")


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([], "spec.cidrs: Required value: at least one CIDR required"),
        (
            ["10.1.2.3/24"],
            'spec.cidrs[0]: Invalid value: "10.1.2.3/24": must not have bits set beyond the prefix length',
        ),
        (
            ["10.3.0.0/24", "10.4.0.0/24"],
            'spec.cidrs: Invalid value: ["10.3.0.0/24","10.4.0.0/24"]: may specify no more than one IP for each IP'
            " family, i.e 192.168.0.0/24 and 2001:db8::/64",
        ),
    ],
)
def test_invalid_ranges_are_refused(api: Client, ranges: list[str], message: str) -> None:
    refused = api.post(CIDRS, {"metadata": {"name": "invalid"}, "spec": {"cidrs": ranges}})
    assert refused.message.split(" is invalid: ")[1] == message
