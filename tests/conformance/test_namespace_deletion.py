"""The order in which a namespace is emptied, and what cannot be deleted."""

from __future__ import annotations

from typing import Any

from tests.conformance.objects import Space
from tests.support.waiting import eventually

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def conditions(space: Space) -> dict[str, Any]:
    namespace = space.api.get(f"/api/v1/namespaces/{space.name}").json
    return {condition["type"]: condition for condition in namespace["status"].get("conditions") or ()}


def is_gone(space: Space) -> bool:
    return space.api.get(f"/api/v1/namespaces/{space.name}").status == 404


def test_pods_are_deleted_before_what_they_use(space: Space) -> None:
    api = space.api
    pod = {
        "metadata": {"name": "a", "finalizers": ["torchyard.dev/held"]},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    assert api.post(space.path("pods"), pod).status == 201
    api.post(space.path("configmaps"), {"metadata": {"name": "used"}})
    api.delete(f"/api/v1/namespaces/{space.name}")
    eventually(lambda: "deletionTimestamp" in api.get(space.path("pods", "a")).json["metadata"], "the pod is deleted")
    eventually(lambda: "NamespaceContentRemaining" in conditions(space), "the conditions")
    assert api.get(space.path("configmaps", "used")).status == 200
    api.patch(space.path("pods", "a"), {"metadata": {"finalizers": None}})
    eventually(lambda: is_gone(space), "the namespace is gone")


def test_a_webhook_that_is_gone_is_reported_and_keeps_only_what_it_guards(space: Space) -> None:
    api = space.api
    for plural in ("configmaps", "secrets"):
        api.post(space.path(plural), {"metadata": {"name": "a"}})
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}
    webhook = {
        **{"name": "guard.torchyard.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"]},
        "clientConfig": {"service": {"name": "gone", "namespace": space.name}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space.name}},
        "rules": [rule],
    }
    assert api.post(WEBHOOKS, {"metadata": {"name": space.name}, "webhooks": [webhook]}).status == 201
    path = space.path("configmaps", "a")
    eventually(lambda: api.delete(f"{path}?dryRun=All").status == 500, "the webhook is called")
    api.delete(f"/api/v1/namespaces/{space.name}")
    kind = "NamespaceDeletionContentFailure"
    eventually(lambda: conditions(space).get(kind, {}).get("status") == "True", "the failure is reported")
    failure = conditions(space)[kind]
    assert failure["reason"] == "ContentDeletionFailed"
    assert failure["message"].startswith(
        "Failed to delete all resource types, 1 remaining: Internal error occurred: failed calling webhook"
        ' "guard.torchyard.dev": failed to call webhook: Post "https://gone.'
    )
    eventually(lambda: api.get(space.path("secrets", "a")).status == 404, "the rest is deleted")
    api.delete(f"{WEBHOOKS}/{space.name}")
    eventually(lambda: is_gone(space), "the namespace is gone", 90)
