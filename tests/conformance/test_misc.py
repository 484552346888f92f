"""Points 61 to 65: health, version, metrics, reviews, leases, the kubernetes Service."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.conformance.differences import expected
from tests.conformance.objects import Space, lease, path
from tests.support.http import Client
from tests.support.kubernetes import Server


@pytest.mark.point(61)
def test_health_version_and_metrics_are_served(api: Client) -> None:
    for at in ("/healthz", "/livez", "/readyz"):
        plain = api.get(at)
        assert (plain.status, plain.text) == (200, "ok")
        assert plain.headers["Content-Type"].startswith("text/plain")
        verbose = api.get(at, query={"verbose": ""})
        assert verbose.text.splitlines()[-1] == f"{at[1:]} check passed"
        assert "[+]ping ok" in verbose.text.splitlines()
        assert api.get(f"{at}/ping").text == "ok"
    version = api.get("/version").json
    assert version["major"] == "1"
    assert re.match(r"\d+", version["minor"])
    assert re.match(r"v1\.\d+\.\d+", version["gitVersion"])
    assert {"gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"} <= version.keys()
    assert api.get("/version/").json == version
    metrics = api.get("/metrics")
    assert (metrics.status, metrics.headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert "# TYPE apiserver_request_total counter" in metrics.text


@pytest.mark.point(61)
def test_discovery_is_served_aggregated_and_unaggregated(server: Server, api: Client) -> None:
    core = api.get("/api").json
    assert (core["kind"], core["versions"]) == ("APIVersions", ["v1"])
    groups = api.get("/apis").json
    assert groups["kind"] == "APIGroupList"
    by_name = {group["name"]: group for group in groups["groups"]}
    assert by_name["apps"]["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
    assert {"apps", "batch", "coordination.k8s.io", "events.k8s.io", "rbac.authorization.k8s.io"} <= by_name.keys()
    assert api.get("/apis/apps").json["kind"] == "APIGroup"
    resources = {r["name"]: r for r in api.get("/api/v1").json["resources"]}
    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods"]["categories"] == ["all"]
    assert resources["pods"]["singularName"] == "pod"
    assert set(resources["pods/status"]["verbs"]) == {"get", "patch", "update"}
    for at in ("/api", "/apis"):
        for version in expected(server, "aggregated-discovery-versions"):
            accept = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            answer = api.get(at, headers={"Accept": f"{accept},application/json"})
            assert answer.headers["Content-Type"] == accept
            assert answer.json["kind"] == "APIGroupDiscoveryList"
            assert answer.json["apiVersion"] == f"apidiscovery.k8s.io/{version}"
            etag = answer.headers["ETag"]
            again = api.get(at, headers={"Accept": accept, "If-None-Match": etag})
            assert (again.status, again.body) == (304, b"")


@pytest.mark.point(61)
def test_openapi_documents_are_listed_and_cacheable(api: Client) -> None:
    index = api.get("/openapi/v3").json["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/batch/v1"} <= index.keys()
    document = api.get(index["apis/batch/v1"]["serverRelativeURL"])
    assert "immutable" in document.headers["Cache-Control"]
    assert document.json["openapi"].startswith("3.")
    patch = document.json["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "batch", "version": "v1", "kind": "Job"}
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]


def review(api: Client, resource: str, spec: dict[str, Any]) -> Any:
    answer = api.post(path(resource), {"spec": spec})
    assert answer.status == 201, answer
    return answer.json["status"]


@pytest.mark.point(62)
def test_a_user_may_review_its_own_identity_and_permissions(server: Server, space: Space) -> None:
    alice = server.admin.as_user("alice-token")
    user = review(alice, "selfsubjectreviews", {})["userInfo"]
    assert user["username"] == "alice"
    assert user["uid"] == "1001"
    assert set(user["groups"]) == {"developers", "system:authenticated"}
    ask = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": space.name}}
    assert review(server.admin, "selfsubjectaccessreviews", ask)["allowed"] is True
    assert review(alice, "selfsubjectaccessreviews", ask)["allowed"] is False
    url = {"nonResourceAttributes": {"verb": "get", "path": "/version"}}
    assert review(alice, "selfsubjectaccessreviews", url)["allowed"] is True
    rules = review(server.admin, "selfsubjectrulesreviews", {"namespace": space.name})
    assert {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]} in rules["resourceRules"]
    both = server.admin.post(path("selfsubjectaccessreviews"), {"spec": ask | url})
    assert (both.status, both.reason) == (422, "Invalid")


@pytest.mark.point(63)
def test_a_lease_has_one_holder_by_its_resource_version(space: Space) -> None:
    times = {"acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"}
    created = space.make(
        "leases", lease("l", holderIdentity="one", leaseDurationSeconds=15, leaseTransitions=0, **times)
    )
    at = space.path("leases", "l")
    mine = created | {"spec": created["spec"] | {"renewTime": "2026-01-01T00:00:05.123456Z"}}
    renewed = space.api.put(at, mine)
    assert (renewed.status, renewed.json["spec"]["renewTime"]) == (200, "2026-01-01T00:00:05.123456Z")
    theirs = created | {"spec": created["spec"] | {"holderIdentity": "two"}}
    lost = space.api.put(at, theirs)
    assert (lost.status, lost.reason) == (409, "Conflict")
    assert space.get("leases", "l")["spec"]["holderIdentity"] == "one"
    bad = space.api.post(space.path("leases"), lease("bad", leaseDurationSeconds=0))
    assert (bad.status, bad.causes[0]["field"]) == (422, "spec.leaseDurationSeconds")


@pytest.mark.point(65)
def test_the_server_is_a_service_of_the_default_namespace(api: Client) -> None:
    result = api.get(path("services", "kubernetes", namespace="default"))
    assert result.status == 200
    spec = result.json["spec"]
    assert result.json["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert spec["type"] == "ClusterIP"
    assert spec["clusterIP"].endswith(".0.1") or spec["clusterIP"]
    assert [(p["name"], p["port"], p["protocol"]) for p in spec["ports"]] == [("https", 443, "TCP")]


@pytest.mark.point(61)
def test_requests_are_counted_by_verb_and_resource(api: Client) -> None:
    api.get("/api/v1/namespaces/default")
    text = api.get("/metrics").text
    counted = [line for line in text.splitlines() if line.startswith("apiserver_request_total{")]
    assert any('resource="namespaces"' in line and 'code="200"' in line for line in counted)
