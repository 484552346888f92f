"""Endpoints and EndpointSlices follow services and pods, on a plane and on a real cluster."""

from __future__ import annotations

from typing import Any

from tests.controllers.conftest import Place

from torchyard.api.gvr import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES
from torchyard.api.objects import Object


def service(name: str, **spec: Any) -> Object:
    wanted = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    return {"metadata": {"name": name, "labels": {"team": "a"}}, "spec": wanted}


def addresses(endpoints: Object, kind: str = "addresses") -> list[str]:
    return [item["ip"] for subset in endpoints.get("subsets") or () for item in subset.get(kind) or ()]


async def test_the_endpoints_of_a_service_are_its_pods_by_readiness(place: Place) -> None:
    await place.create(SERVICES, service("web"))
    for number, ready in enumerate((True, False)):
        await place.pod(f"p{number}", node="n", labels={"app": "web"})
        await place.move(f"p{number}", "Running", address=f"10.0.0.{number + 1}", ready=ready)
    await place.pod("other", node="n", labels={"app": "db"})
    await place.move("other", "Running", address="10.0.0.9")
    found = await place.becomes(ENDPOINTS, "web", lambda item: addresses(item) and addresses(item, "notReadyAddresses"))
    pod = await place.get(SERVICES, "web")
    assert found["metadata"]["labels"] == {"team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    (subset,) = found["subsets"]
    assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
    assert addresses(found) == ["10.0.0.1"]
    assert addresses(found, "notReadyAddresses") == ["10.0.0.2"]
    target = subset["addresses"][0]["targetRef"]
    assert (target["kind"], target["name"], target["namespace"]) == ("Pod", "p0", pod["metadata"]["namespace"])


async def test_a_named_port_with_different_numbers_gets_several_subsets(place: Place) -> None:
    ports = [{"name": "h", "port": 80, "targetPort": "http"}, {"name": "m", "port": 81, "targetPort": 9000}]
    await place.create(SERVICES, service("web", clusterIP="None", ports=ports))
    for number in (1, 2):
        port = {"name": "http", "containerPort": 8080 + number}
        await place.pod(f"p{number}", node="n", labels={"app": "web"}, container={"ports": [port]})
        await place.move(f"p{number}", "Running", address=f"10.0.0.{number}")
    found = await place.becomes(ENDPOINTS, "web", lambda item: len(addresses(item)) == 4)
    assert found["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    shown = {
        (port["name"], port["port"]): [address["ip"] for address in subset["addresses"]]
        for subset in found["subsets"]
        for port in subset["ports"]
    }
    assert shown == {("h", 8081): ["10.0.0.1"], ("h", 8082): ["10.0.0.2"], ("m", 9000): ["10.0.0.1", "10.0.0.2"]}


async def test_deleting_a_service_deletes_its_endpoints(place: Place) -> None:
    await place.create(SERVICES, service("web"))
    await place.becomes(ENDPOINTS, "web", lambda _: True)
    await place.delete(SERVICES, "web")
    await place.gone(ENDPOINTS, "web")


async def test_endpoints_of_a_service_without_a_selector_are_kept(place: Place) -> None:
    await place.create(SERVICES, service("mine", selector=None))
    await place.create(ENDPOINTS, {"metadata": {"name": "mine"}, "subsets": [{"addresses": [{"ip": "10.1.1.1"}]}]})
    await place.create(SERVICES, service("web"))
    await place.becomes(ENDPOINTS, "web", lambda _: True)
    assert addresses(await place.get(ENDPOINTS, "mine")) == ["10.1.1.1"]


async def test_a_pod_that_changes_its_labels_moves_to_another_service(place: Place) -> None:
    await place.create(SERVICES, service("web"))
    await place.create(SERVICES, service("db", selector={"app": "db", "tier": "back"}))
    node = f"{place.namespace}-node"  # slices, unlike Endpoints, contain no pod of an unknown node
    await place.node(node)
    await place.pod("p", node=node, labels={"app": "web", "tier": "back"})
    await place.move("p", "Running", address="10.0.0.1")
    await place.becomes(ENDPOINTS, "web", addresses)
    await place.patch(PODS, "p", {"metadata": {"labels": {"app": "db"}}})
    await place.becomes(ENDPOINTS, "db", addresses)
    await place.becomes(ENDPOINTS, "web", lambda item: not addresses(item))

    async def slices() -> bool:
        found = (await place.client.list(ENDPOINT_SLICES, place.namespace)).items
        shown = {
            item["metadata"]["labels"]["kubernetes.io/service-name"]: len(item.get("endpoints") or ()) for item in found
        }
        return shown == {"web": 0, "db": 1}

    await place.until(slices)
