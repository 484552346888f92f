"""Points 16 to 18: status, scale and the other subresources."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.objects import (
    Definitions,
    Object,
    Space,
    config_map,
    crd,
    custom,
    deployment,
    path,
    pod,
)
from tests.support.http import STRATEGIC, Answer, Client
from tests.support.waiting import eventually


@pytest.mark.point(16)
def test_the_status_subresource_changes_only_the_status(space: Space) -> None:
    created = space.make("deployments", deployment("d") | {"status": {"replicas": 7}})
    assert created["status"] == {}
    at = space.path("deployments", "d")
    body = created | {"spec": created["spec"] | {"replicas": 9}, "status": {"replicas": 3}}
    body["metadata"] = created["metadata"] | {"labels": {"from": "status"}}
    answer = space.api.put(f"{at}/status", body)
    assert answer.status == 200
    assert answer.json["status"] == {"replicas": 3}
    assert answer.json["spec"]["replicas"] == 1
    assert "labels" not in answer.json["metadata"]
    patched = space.api.patch(f"{at}/status", {"spec": {"replicas": 5}, "status": {"readyReplicas": 1}})
    assert patched.json["spec"]["replicas"] == 1
    assert patched.json["status"]["readyReplicas"] == 1
    assert space.api.get(f"{at}/status").json["status"] == patched.json["status"]


@pytest.mark.point(16)
def test_the_main_resource_ignores_the_status(space: Space) -> None:
    space.make("deployments", deployment("d"))
    at = space.path("deployments", "d")
    space.api.patch(f"{at}/status", {"status": {"replicas": 3}})
    live = space.get("deployments", "d")
    assert space.api.put(at, live | {"status": {"replicas": 99}}).json["status"] == {"replicas": 3}
    assert space.api.patch(at, {"status": {"replicas": 99}}).json["status"] == {"replicas": 3}


@pytest.mark.point(16)
def test_a_status_update_of_a_pod_changes_its_labels_too(space: Space) -> None:
    space.make("pods", pod("p"))
    patch = {"metadata": {"labels": {"from": "status"}}, "status": {"phase": "Running"}}
    answer = space.api.patch(space.path("pods", "p", "status"), patch, STRATEGIC)
    assert answer.json["status"]["phase"] == "Running"
    assert answer.json["metadata"]["labels"] == {"from": "status"}


@pytest.mark.point(16)
def test_custom_resources_keep_status_and_spec_apart(space: Space, crds: Definitions) -> None:
    crds.create(crd("gadgets", version={"subresources": {"status": {}}}))
    crds.create(crd("gizmos"))
    gadgets, gizmos = (space.path(plural, group="test.torchyard.dev/v1") for plural in ("gadgets", "gizmos"))
    created = space.api.post(gadgets, custom("Gadget", "a", spec={"x": 1}, status={"y": 1}))
    assert created.status == 201
    assert "status" not in created.json
    patch = {"metadata": {"labels": {"l": "1"}}, "spec": {"x": 2}, "status": {"y": 2}}
    answer = space.api.patch(f"{gadgets}/a/status", patch)
    assert answer.status == 200, answer
    assert (answer.json["spec"], answer.json["status"]) == ({"x": 1}, {"y": 2})
    assert "labels" not in answer.json["metadata"]
    answer = space.api.patch(f"{gadgets}/a", {"spec": {"x": 3}, "status": {"y": 3}})
    assert (answer.json["spec"], answer.json["status"]) == ({"x": 3}, {"y": 2})
    whole = space.api.post(gizmos, custom("Gizmo", "a", status={"y": 1}))
    assert whole.json["status"] == {"y": 1}
    missing = space.api.patch(f"{gizmos}/a/status", {"status": {"y": 2}})
    assert missing.status == 404


@pytest.mark.point(17)
def test_scale_shows_and_changes_the_replicas(space: Space) -> None:
    space.make("deployments", deployment("d", spec={"replicas": 2}))
    at = space.path("deployments", "d", "scale")
    shown = space.api.get(at).json
    assert (shown["apiVersion"], shown["kind"]) == ("autoscaling/v1", "Scale")
    assert shown["metadata"]["name"] == "d"
    assert shown["spec"] == {"replicas": 2}
    assert shown["status"] == {"replicas": 0, "selector": "app=x"}
    patched = space.api.patch(at, {"spec": {"replicas": 5}})
    assert (patched.status, patched.json["kind"], patched.json["spec"]) == (200, "Scale", {"replicas": 5})
    put = space.api.put(at, patched.json | {"spec": {"replicas": 6}})
    assert (put.status, put.json["spec"]) == (200, {"replicas": 6})
    live = space.get("deployments", "d")
    assert (live["spec"]["replicas"], live["metadata"]["generation"]) == (6, 3)
    stale = space.api.put(at, patched.json | {"spec": {"replicas": 7}})
    assert (stale.status, stale.reason) == (409, "Conflict")
    negative = space.api.patch(at, {"spec": {"replicas": -1}})
    assert (negative.status, negative.reason) == (422, "Invalid")


@pytest.mark.point(17)
def test_scale_of_custom_resources_maps_their_own_paths(space: Space, crds: Definitions) -> None:
    paths = {
        "specReplicasPath": ".spec.workers",
        "statusReplicasPath": ".status.workers",
        "labelSelectorPath": ".status.sel",
    }
    crds.create(crd("gadgets", version={"subresources": {"status": {}, "scale": paths}}))
    at = space.path("gadgets", group="test.torchyard.dev/v1")
    space.api.post(at, custom("Gadget", "a", spec={"workers": 2}))
    space.api.patch(f"{at}/a/status", {"status": {"workers": 1, "sel": "a=b"}})
    shown = space.api.get(f"{at}/a/scale").json
    assert (shown["kind"], shown["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (shown["spec"], shown["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "a=b"})
    assert space.api.patch(f"{at}/a/scale", {"spec": {"replicas": 4}}).json["spec"] == {"replicas": 4}
    assert space.api.get(f"{at}/a").json["spec"] == {"workers": 4}


def node(api: Client, name: str) -> None:
    answer = api.post("/api/v1/nodes", {"metadata": {"name": name}})
    assert answer.status in (201, 409), answer


def binding(pod_name: str, node_name: str) -> Object:
    return {"metadata": {"name": pod_name}, "target": {"kind": "Node", "name": node_name}}


@pytest.mark.point(18)
def test_a_pod_is_bound_to_a_node_once(space: Space) -> None:
    node(space.api, "node-18")
    space.make("pods", pod("p"))
    at = space.path("pods", "p", "binding")
    bound = space.api.post(at, binding("p", "node-18"))
    assert (bound.status, bound.json["kind"], bound.json["status"]) == (201, "Status", "Success")
    live = space.get("pods", "p")
    assert (live["spec"]["nodeName"], live["metadata"]["generation"]) == ("node-18", 1)
    assert {"type": "PodScheduled", "status": "True"}.items() <= live["status"]["conditions"][0].items()
    again = space.api.post(at, binding("p", "node-18"))
    assert (again.status, again.reason) == (409, "Conflict")
    assert 'pod p is already assigned to node "node-18"' in again.message
    legacy = space.api.post(space.path("bindings"), binding("nobody", "node-18"))
    assert legacy.status == 404


@pytest.mark.point(18)
def test_eviction_deletes_a_pod_unless_a_budget_forbids_it(space: Space) -> None:
    for name in ("free", "kept"):
        space.make("pods", pod(name, labels={"who": name}))
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "free"}}
    evicted = space.api.post(space.path("pods", "free", "eviction"), body)
    assert (evicted.status, evicted.json["status"]) == (201, "Success")
    eventually(lambda: space.gone("pods", "free"), "the evicted pod gone")
    space.make(
        "poddisruptionbudgets",
        {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"who": "kept"}}}},
    )
    # A pod that has not started may always go; this one runs and is ready.
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert space.api.patch(space.path("pods", "kept", "status"), {"status": status}).status == 200
    budget_status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    budget_status["expectedPods"] = 1
    answer = space.api.patch(space.path("poddisruptionbudgets", "b", "status"), {"status": budget_status})
    assert answer.status == 200, answer
    body["metadata"]["name"] = "kept"
    refused = space.api.post(space.path("pods", "kept", "eviction"), body)
    assert (refused.status, refused.reason) == (429, "TooManyRequests"), refused
    assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert refused.causes[0]["reason"] == "DisruptionBudget"
    assert not space.gone("pods", "kept")


def _evict(space: Space, name: str, preconditions: dict[str, str]) -> Answer:
    metadata, options = {"name": name}, {"preconditions": preconditions}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
    return space.api.post(space.path("pods", name, "eviction"), body)


def _run_pod(space: Space, name: str, *, ready: bool) -> str:
    """Returns its resourceVersion."""
    space.make("pods", pod(name, labels={"who": "all"}))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    answer = space.api.patch(space.path("pods", name, "status"), {"status": status})
    return str(answer.json["metadata"]["resourceVersion"])


@pytest.mark.point(18)
def test_the_preconditions_of_an_eviction_are_compared_before_the_pod_is_marked(space: Space) -> None:
    for name in ("uid", "old", "fresh"):
        version = _run_pod(space, name, ready=True)
    other = _evict(space, "uid", {"uid": "another"})
    assert (other.status, other.reason, other.json["details"]) == (409, "Conflict", {"name": "uid", "kind": "Pod"})
    assert other.message.startswith('Operation cannot be fulfilled on Pod "uid": the UID in the precondition (another)')
    assert _evict(space, "old", {"resourceVersion": "1"}).status == 409
    for name in ("uid", "old"):
        (condition,) = space.api.get(space.path("pods", name)).json["status"]["conditions"]
        assert condition["type"] == "Ready"
    assert _evict(space, "fresh", {"resourceVersion": version}).status == 201


@pytest.mark.point(18)
def test_an_unhealthy_pod_is_evicted_at_the_resource_version_that_was_judged(space: Space) -> None:
    selector = {"matchLabels": {"who": "all"}}
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": selector, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    }
    space.make("poddisruptionbudgets", budget)
    for name in ("uid", "fresh", "old"):
        version = _run_pod(space, name, ready=False)
        if name == "uid":
            refused = _evict(space, name, {"uid": "another"})
            assert (refused.status, refused.json["details"]["retryAfterSeconds"]) == (429, 10)
            assert refused.causes[0]["message"] == "The disruption budget b is still being processed by the server."
        else:
            wanted = version if name == "fresh" else "1"
            assert _evict(space, name, {"resourceVersion": wanted}).status == 201


@pytest.mark.point(21)
def test_a_failed_precondition_of_a_delete_names_the_kind(space: Space) -> None:
    space.make("configmaps", {"metadata": {"name": "x"}})
    space.make("deployments", deployment("x"))
    for plural, kind in (("configmaps", "ConfigMap"), ("deployments", "Deployment.apps")):
        for field, value in (("uid", "another"), ("resourceVersion", "1")):
            answer = space.api.delete(space.path(plural, "x"), {"preconditions": {field: value}})
            assert answer.status == 409
            assert answer.message.startswith(f'Operation cannot be fulfilled on {kind} "x": the ')
            assert answer.json["details"]["kind"] == kind.partition(".")[0]


@pytest.mark.point(18)
def test_ephemeral_containers_are_added_through_their_subresource(space: Space) -> None:
    space.make("pods", pod("p"))
    extra = {"name": "debugger", "image": "busybox", "targetContainerName": "main"}
    patch = {"spec": {"ephemeralContainers": [extra]}}
    wrong_door = space.api.patch(space.path("pods", "p"), patch, STRATEGIC)
    assert (wrong_door.status, wrong_door.reason) == (422, "Invalid")
    answer = space.api.patch(space.path("pods", "p", "ephemeralcontainers"), patch, STRATEGIC)
    assert answer.status == 200, answer
    (added,) = answer.json["spec"]["ephemeralContainers"]
    assert added["name"] == "debugger"
    assert added["imagePullPolicy"] == "Always"
    removed = space.api.patch(
        space.path("pods", "p", "ephemeralcontainers"), {"spec": {"ephemeralContainers": None}}, STRATEGIC
    )
    assert removed.status == 422


@pytest.mark.point(18)
def test_a_token_request_returns_a_token_for_the_service_account(space: Space) -> None:
    at = space.path("serviceaccounts", "default", "token")
    answer = space.api.post(at, {"spec": {"expirationSeconds": 3600, "audiences": []}})
    assert answer.status == 201, answer
    token = answer.json["status"]["token"]
    assert answer.json["spec"]["expirationSeconds"] == 3600
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = space.api.as_user(token).post(path("selfsubjectreviews"), review).json["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{space.name}:default"
    assert {"system:serviceaccounts", f"system:serviceaccounts:{space.name}", "system:authenticated"} <= set(
        user["groups"]
    )
    short = space.api.post(at, {"spec": {"expirationSeconds": 5}})
    assert (short.status, short.causes[0]["field"]) == (422, "spec.expirationSeconds")


@pytest.mark.point(18)
def test_the_finalize_subresource_changes_the_finalizers_of_a_namespace(space: Space) -> None:
    live = space.api.get(path("namespaces", space.name)).json
    assert live["spec"]["finalizers"] == ["kubernetes"]
    main = space.api.put(path("namespaces", space.name), live | {"spec": {"finalizers": []}})
    assert main.json["spec"]["finalizers"] == ["kubernetes"]
    extra = {"finalizers": ["kubernetes", "test.torchyard.dev/hold"]}
    finalized = space.api.put(path("namespaces", space.name, "finalize"), main.json | {"spec": extra})
    assert (finalized.status, finalized.json["spec"]) == (200, extra)
    back = space.api.put(
        path("namespaces", space.name, "finalize"), finalized.json | {"spec": {"finalizers": ["kubernetes"]}}
    )
    assert back.status == 200


@pytest.mark.point(18)
def test_a_pod_without_a_node_has_an_empty_log_and_no_streams(space: Space) -> None:
    space.make("pods", pod("p"))
    log = space.api.get(space.path("pods", "p", "log"))
    assert (log.status, log.body) == (204, b"")
    missing = space.api.get(space.path("pods", "nobody", "log"))
    assert (missing.status, missing.message) == (404, 'pods "nobody" not found')
    no_such = space.api.get(space.path("pods", "p", "log"), query={"container": "other"})
    assert (no_such.status, no_such.message) == (400, "container other is not valid for pod p")
    plain = space.api.get(space.path("pods", "p", "exec"), query={"command": "true", "stdout": "true"})
    assert (plain.status, plain.message) == (400, "pod p does not have a host assigned")


@pytest.mark.point(18)
def test_an_unknown_subresource_is_not_found(space: Space) -> None:
    space.make("configmaps", config_map("a"))
    for sub in ("status", "scale", "nothing"):
        assert space.api.get(space.path("configmaps", "a", sub)).status == 404


@pytest.mark.point(18)
@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({"tailLines": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"sinceTime": "x"}, 400, 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ({"limitBytes": "0"}, 422, "limitBytes: Invalid value: 0: must be greater than 0"),
        ({"sinceSeconds": "0"}, 422, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        ({"tailLines": "-1"}, 422, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"},
            422,
            "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
    ],
)
def test_log_options_are_validated(space: Space, query: dict[str, str], status: int, message: str) -> None:
    answer = space.api.get(space.path("pods", "nobody", "log"), query=query)
    assert answer.status == status
    assert answer.message.endswith(message), answer.message
