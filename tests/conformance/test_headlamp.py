"""The requests of Headlamp, as its published library makes them (@kinvolk/headlamp-plugin 0.14), on both servers.

Its pages ask through a proxy of its own, which adds the user's token and passes everything else on. They list and watch
(over WebSocket) what they show, and do without what answers 404.
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from tests.conformance.objects import Space
from tests.conformance.test_websocket_watch import ORIGIN, session
from tests.support.http import STRATEGIC, Client
from tests.support.kubernetes import Server

# What its pages list, by API version. Pages of kinds that a cluster does not serve are empty or hidden.
LISTED = {
    "api/v1": (
        *("configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes", "persistentvolumeclaims"),
        *("persistentvolumes", "pods", "resourcequotas", "secrets", "serviceaccounts", "services"),
    ),
    "apis/admissionregistration.k8s.io/v1": ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
    "apis/apiextensions.k8s.io/v1": ("customresourcedefinitions",),
    "apis/apps/v1": ("controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"),
    "apis/autoscaling/v2": ("horizontalpodautoscalers",),
    "apis/batch/v1": ("cronjobs", "jobs"),
    "apis/coordination.k8s.io/v1": ("leases",),
    "apis/discovery.k8s.io/v1": ("endpointslices",),
    "apis/networking.k8s.io/v1": ("ingressclasses", "ingresses", "networkpolicies"),
    "apis/node.k8s.io/v1": ("runtimeclasses",),
    "apis/policy/v1": ("poddisruptionbudgets",),
    "apis/rbac.authorization.k8s.io/v1": ("clusterrolebindings", "clusterroles", "rolebindings", "roles"),
    "apis/scheduling.k8s.io/v1": ("priorityclasses",),
    "apis/storage.k8s.io/v1": ("storageclasses", "volumeattributesclasses"),
}
ABSENT = {
    "apis/gateway.networking.k8s.io/v1": ("gatewayclasses", "gateways", "grpcroutes", "httproutes"),
    "apis/gateway.networking.k8s.io/v1alpha3": ("backendtlspolicies",),
    "apis/autoscaling.k8s.io/v1": ("verticalpodautoscalers",),
    "apis/extensions/v1beta1": ("ingresses",),
    "apis/apiextensions.k8s.io/v1beta1": ("customresourcedefinitions",),
}
PATHS = [f"/{version}/{resource}" for version, resources in LISTED.items() for resource in resources]
AGGREGATED = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
REVIEWS = "/apis/authorization.k8s.io/v1"


@pytest.mark.parametrize("path", PATHS)
async def test_what_its_pages_show_is_listed_and_watched(server: Server, path: str) -> None:
    """The list, then a watch from its version by the WebSocket protocol that Headlamp asks for."""
    answer = server.admin.get(path, query={"limit": "100"})
    assert answer.status == 200, answer
    version = answer.json["metadata"]["resourceVersion"]
    watch = f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=1"
    async with (
        session(server) as client,
        client.ws_connect(watch, headers=ORIGIN, protocols=("base64.binary.k8s.io",)) as socket,
    ):
        assert socket.protocol == "base64.binary.k8s.io"
        types = {json.loads(message.data)["type"] async for message in socket if message.type is aiohttp.WSMsgType.TEXT}
        assert types <= {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}


@pytest.mark.parametrize(
    "path", [f"/{version}/{resource}" for version, resources in ABSENT.items() for resource in resources]
)
def test_what_is_not_installed_is_not_found(api: Client, path: str) -> None:
    assert api.get(path).status == 404


def test_it_discovers_the_resources_and_the_version(api: Client) -> None:
    for path in ("/api", "/apis"):
        groups = api.get(path, headers={"Accept": AGGREGATED}).json["items"]
        resources = [each for group in groups for version in group["versions"] for each in version["resources"]]
        assert all({"resource", "responseKind", "scope", "verbs"} <= set(each) for each in resources)
    assert {"apps", "batch"} <= {each["name"] for each in api.get("/apis").json["groups"]}
    assert api.get("/api").json["versions"] == ["v1"]
    assert api.get("/apis/batch/v1").json["kind"] == "APIResourceList"
    assert api.get("/version").json["gitVersion"].startswith("v1.34")
    assert api.get("/healthz").text == "ok"
    assert api.get("/openapi/v2", headers={"Accept": "application/json"}).json["swagger"] == "2.0"


def test_it_asks_who_the_user_is_and_what_he_may(api: Client, space: Space) -> None:
    me = api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {"metadata": {}})
    assert me.status == 201 and me.json["status"]["userInfo"]["username"]
    rules = api.post(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": space.name}})
    assert rules.status == 201 and rules.json["status"]["resourceRules"]
    attributes = {"namespace": space.name, "verb": "update", "resource": "pods", "subresource": "exec"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    allowed = api.post(f"{REVIEWS}/selfsubjectaccessreviews", body)
    assert allowed.status == 201 and allowed.json["status"]["allowed"] is True


def test_its_buttons_scale_restart_evict_cordon_edit_and_delete(api: Client, space: Space) -> None:
    """With the methods, types and queries that it sends."""
    labels = {"app": "web"}
    pod: dict[str, Any] = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web"}]}}
    deployment = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": pod}}
    collection = f"/apis/apps/v1/namespaces/{space.name}/deployments"
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", **deployment}
    created = api.post(collection, applied)  # "Create" and "Apply": a POST, and a PUT where it exists
    assert created.status == 201
    edited = {**created.json, "spec": {**created.json["spec"], "replicas": 2}}
    assert api.post(collection, applied).status == 409
    assert api.put(f"{collection}/web", edited).json["spec"]["replicas"] == 2
    scale = api.get(f"{collection}/web/scale").json
    scale["spec"]["replicas"] = 3
    assert api.put(f"{collection}/web/scale", scale).json["spec"]["replicas"] == 3
    assert api.patch(f"{collection}/web/scale", {"spec": {"replicas": 1}}).status == 200
    restarted = {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
    patch = {"spec": {"template": {"metadata": {"annotations": restarted}}}}
    assert api.patch(f"{collection}/web", patch).status == 200
    assert api.delete(f"{collection}/web", query={"propagationPolicy": "Background"}).status == 200

    pods = f"/api/v1/namespaces/{space.name}/pods"
    assert api.post(pods, {"metadata": {"name": "a", "labels": labels}, "spec": pod["spec"]}).status == 201
    selected = api.get(pods, query={"labelSelector": "app=web", "fieldSelector": "metadata.name=a"})
    assert [each["metadata"]["name"] for each in selected.json["items"]] == ["a"]
    debugger = {"name": "debugger", "image": "busybox", "stdin": True, "tty": True, "targetContainerName": "main"}
    added = api.patch(f"{pods}/a/ephemeralcontainers", {"spec": {"ephemeralContainers": [debugger]}}, STRATEGIC)
    assert added.status == 200, added
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": space.name}}
    assert api.post(f"{pods}/a/eviction", eviction).status == 201

    name = f"node-of-{space.name}"
    assert api.post("/api/v1/nodes", {"metadata": {"name": name}}).status == 201
    assert api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}).json["spec"]["unschedulable"]
    on_node = api.get("/api/v1/pods", query={"fieldSelector": f"spec.nodeName={name}"})
    assert on_node.status == 200 and on_node.json["items"] == []
    assert api.delete(f"/api/v1/nodes/{name}").status == 200
