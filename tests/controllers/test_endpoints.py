"""Endpoints and EndpointSlices follow services and pods, on a plane and on a real cluster."""

from __future__ import annotations

from typing import Any

from tests.controllers.conftest import Cluster

from torchyard.api.gvr import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES
from torchyard.api.objects import Object


def service(name: str, **spec: Any) -> Object:
    wanted = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    return {"metadata": {"name": name, "labels": {"team": "a"}}, "spec": wanted}


def addresses(endpoints: Object, kind: str = "addresses") -> list[str]:
    return [item["ip"] for subset in endpoints.get("subsets") or () for item in subset.get(kind) or ()]


async def test_the_endpoints_of_a_service_are_its_pods_by_readiness(cluster: Cluster) -> None:
    await cluster.create(SERVICES, service("web"))
    for number, ready in enumerate((True, False)):
        await cluster.pod(f"p{number}", node="n", labels={"app": "web"})
        await cluster.move(f"p{number}", "Running", address=f"10.0.0.{number + 1}", ready=ready)
    await cluster.pod("other", node="n", labels={"app": "db"})
    await cluster.move("other", "Running", address="10.0.0.9")
    endpoints = await cluster.becomes(
        ENDPOINTS, "web", lambda item: addresses(item) and addresses(item, "notReadyAddresses")
    )
    web = await cluster.get(SERVICES, "web")
    assert endpoints["metadata"]["labels"] == {"team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    (subset,) = endpoints["subsets"]
    assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
    assert addresses(endpoints) == ["10.0.0.1"]
    assert addresses(endpoints, "notReadyAddresses") == ["10.0.0.2"]
    target = subset["addresses"][0]["targetRef"]
    assert (target["kind"], target["name"], target["namespace"]) == ("Pod", "p0", web["metadata"]["namespace"])


async def test_a_named_port_with_different_numbers_gets_several_subsets(cluster: Cluster) -> None:
    ports = [{"name": "h", "port": 80, "targetPort": "http"}, {"name": "m", "port": 81, "targetPort": 9000}]
    await cluster.create(SERVICES, service("web", clusterIP="None", ports=ports))
    for number in (1, 2):
        port = {"name": "http", "containerPort": 8080 + number}
        await cluster.pod(f"p{number}", node="n", labels={"app": "web"}, container={"ports": [port]})
        await cluster.move(f"p{number}", "Running", address=f"10.0.0.{number}")
    endpoints = await cluster.becomes(ENDPOINTS, "web", lambda item: len(addresses(item)) == 4)
    assert endpoints["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    shown = {
        (port["name"], port["port"]): [address["ip"] for address in subset["addresses"]]
        for subset in endpoints["subsets"]
        for port in subset["ports"]
    }
    assert shown == {("h", 8081): ["10.0.0.1"], ("h", 8082): ["10.0.0.2"], ("m", 9000): ["10.0.0.1", "10.0.0.2"]}


async def test_deleting_a_service_deletes_its_endpoints(cluster: Cluster) -> None:
    await cluster.create(SERVICES, service("web"))
    await cluster.becomes(ENDPOINTS, "web", lambda _: True)
    await cluster.delete(SERVICES, "web")
    await cluster.gone(ENDPOINTS, "web")


async def test_endpoints_of_a_service_without_a_selector_are_kept(cluster: Cluster) -> None:
    await cluster.create(SERVICES, service("mine", selector=None))
    await cluster.create(ENDPOINTS, {"metadata": {"name": "mine"}, "subsets": [{"addresses": [{"ip": "10.1.1.1"}]}]})
    await cluster.create(SERVICES, service("web"))
    await cluster.becomes(ENDPOINTS, "web", lambda _: True)
    assert addresses(await cluster.get(ENDPOINTS, "mine")) == ["10.1.1.1"]


async def test_a_pod_that_changes_its_labels_moves_to_another_service(cluster: Cluster) -> None:
    await cluster.create(SERVICES, service("web"))
    await cluster.create(SERVICES, service("db", selector={"app": "db", "tier": "back"}))
    node = f"{cluster.namespace}-node"  # slices, unlike Endpoints, contain no pod of an unknown node
    await cluster.node(node)
    await cluster.pod("p", node=node, labels={"app": "web", "tier": "back"})
    await cluster.move("p", "Running", address="10.0.0.1")
    await cluster.becomes(ENDPOINTS, "web", addresses)
    await cluster.patch(PODS, "p", {"metadata": {"labels": {"app": "db"}}})
    await cluster.becomes(ENDPOINTS, "db", addresses)
    await cluster.becomes(ENDPOINTS, "web", lambda item: not addresses(item))

    async def slices() -> bool:
        endpoint_slices = (await cluster.client.list(ENDPOINT_SLICES, cluster.namespace)).items
        shown = {
            item["metadata"]["labels"]["kubernetes.io/service-name"]: len(item.get("endpoints") or ())
            for item in endpoint_slices
        }
        return shown == {"web": 0, "db": 1}

    await cluster.until(slices)
