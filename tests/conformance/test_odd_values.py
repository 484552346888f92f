"""Odd values of single fields, in which the two servers once differed: each is sent to both, as a dry run."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml
from tests.conformance.golden.compare import differences, shown
from tests.conformance.objects import path
from tests.support.http import APPLY, Client
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

NAMESPACE = "odd-values"
_POD = {"containers": [{"name": "c", "image": "busybox:1"}]}
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": _POD}
_SELECTOR = {"matchLabels": {"a": "b"}}
_RULES = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
_CLAIM = {"name": "claim", "resourceClaimName": "c"}
_EVENT = {
    "regarding": {"namespace": NAMESPACE, "kind": "Pod", "name": "p"},
    "reason": "R",
    "action": "A",
    "type": "Normal",
    "note": "n",
    "reportingController": "example.com/c",
    "reportingInstance": "i",
    "eventTime": "2026-01-01T00:00:00.000000Z",
}
_NAMED = {"group": "odd.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}}
_VERSION = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}

# kind → apiVersion, plural, a valid object without a name
VALID: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Pod": ("v1", "pods", {"spec": {**_POD, "resourceClaims": [_CLAIM]}}),
    "ConfigMap": ("v1", "configmaps", {}),
    "Node": ("v1", "nodes", {"spec": {}}),
    "Service": ("v1", "services", {"spec": {"ports": [{"port": 80}]}}),
    "Job": ("batch/v1", "jobs", {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}}),
    "CronJob": (
        "batch/v1",
        "cronjobs",
        {
            "spec": {
                "schedule": "@daily",
                "jobTemplate": {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}},
            }
        },
    ),
    "Deployment": ("apps/v1", "deployments", {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}}),
    "DaemonSet": ("apps/v1", "daemonsets", {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}}),
    "ControllerRevision": ("apps/v1", "controllerrevisions", {"revision": 1, "data": {}}),
    "HorizontalPodAutoscaler": (
        "autoscaling/v1",
        "horizontalpodautoscalers",
        {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3}},
    ),
    "EndpointSlice": (
        "discovery.k8s.io/v1",
        "endpointslices",
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "hints": {}}], "ports": [{"port": 80}]},
    ),
    "Event": ("events.k8s.io/v1", "events", _EVENT),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses", {"provisioner": "example.com/p"}),
    "IPAddress": (
        "networking.k8s.io/v1",
        "ipaddresses",
        {"metadata": {"name": "10.96.0.77"}, "spec": {"parentRef": {"resource": "services", "name": "s"}}},
    ),
    "ValidatingAdmissionPolicy": (
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicies",
        {
            "spec": {
                "matchConstraints": {"resourceRules": _RULES},
                "validations": [{"expression": "true"}],
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            }
        },
    ),
    "ValidatingAdmissionPolicyBinding": (
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        {
            "spec": {
                "policyName": "p",
                "validationActions": ["Deny"],
                "paramRef": {"name": "p", "parameterNotFoundAction": "Deny"},
            }
        },
    ),
    "CustomResourceDefinition": (
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        {"metadata": {"name": "things.odd.example.com"}, "spec": {**_NAMED, "versions": [_VERSION]}},
    ),
    "SubjectAccessReview": (
        "authorization.k8s.io/v1",
        "subjectaccessreviews",
        {"spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}},
    ),
    "LocalSubjectAccessReview": (
        "authorization.k8s.io/v1",
        "localsubjectaccessreviews",
        {"spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": NAMESPACE}}},
    ),
    "TokenReview": ("authentication.k8s.io/v1", "tokenreviews", {"spec": {"token": "x"}}),
}
CLUSTER = {
    *("Node", "StorageClass", "IPAddress", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    *("CustomResourceDefinition", "SubjectAccessReview", "TokenReview"),
}
REVIEWS = {"SubjectAccessReview", "LocalSubjectAccessReview", "TokenReview"}
_OF_THE_NODE = re.compile("(has no effect on|is not supported by) this node|is dropped: Kubernetes")
_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}

# kind, the field's path, its value
ODD: list[tuple[str, str, Any]] = [
    ("Pod", "spec.resourceClaims.0.resourceClaimName", "Bad Value!"),
    ("ConfigMap", "metadata.ownerReferences", [_OWNER, _OWNER]),
    ("ConfigMap", "metadata.ownerReferences", [_OWNER, {**_OWNER, "name": "q"}]),
    ("ConfigMap", "metadata.deletionTimestamp", "2026-01-01T00:00:00Z"),
    ("ConfigMap", "metadata.deletionGracePeriodSeconds", 5),
    ("ConfigMap", "metadata.generation", 7),
    ("Pod", "spec.schedulingGates", [{"name": "example.com/gate"}]),
    ("Node", "spec.configSource", {"configMap": {"name": "x"}}),
    ("Service", "spec.ipFamilyPolicy", ""),
    ("Job", "spec.podReplacementPolicy", ""),
    ("Job", "spec.podFailurePolicy", {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In"}}]}),
    ("CronJob", "spec.jobTemplate.spec.template.spec.hostnameOverride", "x"),
    ("Deployment", "spec.strategy", {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": ""}}),
    ("DaemonSet", "spec.updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": ""}}),
    ("ControllerRevision", "data", []),
    ("HorizontalPodAutoscaler", "spec.minReplicas", 2),
    ("EndpointSlice", "endpoints.0.deprecatedTopology", {"k": "v"}),
    ("EndpointSlice", "endpoints.0.hints.forNodes", [{"name": "a/b"}, {"name": "a/b"}]),
    ("EndpointSlice", "ports.0.protocol", ""),
    ("Event", "series", {"count": 1}),
    ("Event", "deprecatedCount", 3),
    ("StorageClass", "reclaimPolicy", ""),
    ("StorageClass", "volumeBindingMode", ""),
    ("IPAddress", "spec.parentRef.group", "a/b"),
    ("IPAddress", "spec.parentRef.resource", "a/b"),
    ("ValidatingAdmissionPolicy", "spec.paramKind.apiVersion", "Bad Value!"),
    ("ValidatingAdmissionPolicy", "spec.paramKind.kind", "a/b"),
    ("ValidatingAdmissionPolicyBinding", "spec.paramRef.name", "a/b"),
    ("ValidatingAdmissionPolicyBinding", "spec.paramRef.selector", {"matchLabels": {"a b": "c"}}),
    ("ValidatingAdmissionPolicyBinding", "spec.paramRef.parameterNotFoundAction", ""),
    ("CustomResourceDefinition", "spec.conversion", {"webhook": {"conversionReviewVersions": ["v1"]}}),
    ("SubjectAccessReview", "spec.groups", ["g"]),
    ("LocalSubjectAccessReview", "spec.groups", ["g"]),
    ("LocalSubjectAccessReview", "metadata.labels", {"a": "b"}),
    ("TokenReview", "spec.audiences", ["a"]),
]


@pytest.fixture(scope="module")
def servers(kube: Server, yard: Server) -> Iterator[list[Client]]:
    clients = [kube.admin, yard.admin]
    account = path("serviceaccounts", "default", namespace=NAMESPACE)
    for client in clients:
        assert client.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).status == 201
        eventually(partial(_exists, client, account), "the service account")
    yield clients


def _exists(client: Client, at: str) -> bool:
    return client.get(at).status == 200


def _with(obj: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    changed: Any = copy.deepcopy(obj)
    holder = changed
    *parents, last = field.split(".")
    for name in parents:
        holder = holder[int(name)] if isinstance(holder, list) else holder.setdefault(name, {})
    holder[last] = value
    return dict(changed)


@pytest.mark.parametrize(("kind", "field", "value"), ODD, ids=[f"{kind}.{field}" for kind, field, _ in ODD])
def test_both_servers_answer_an_odd_value_alike(servers: list[Client], kind: str, field: str, value: Any) -> None:
    version, plural, valid = VALID[kind]
    obj = _with({"apiVersion": version, "kind": kind, **valid}, field, value)
    query: dict[str, Any] = {"fieldManager": "odd"}
    if kind not in REVIEWS:
        obj["metadata"] = {"name": "o", **obj.get("metadata", {})}
        query["dryRun"] = "All"
    prefix = "api" if version == "v1" else "apis"
    at = f"/{prefix}/{version}/{plural}" if kind in CLUSTER else f"/{prefix}/{version}/namespaces/{NAMESPACE}/{plural}"
    real, ours = (shown(client.post(at, obj, query=query)) for client in servers)
    # Ours also names the fields of a pod that its own node does not act on.
    ours["warnings"] = [warning for warning in ours.get("warnings", ()) if not _OF_THE_NODE.search(warning)]
    assert differences({"warnings": [], **real}, ours) == []


def test_a_list_cannot_send_initial_events(servers: list[Client]) -> None:
    at = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    real, ours = (client.get(at, query={"sendInitialEvents": "true"}) for client in servers)
    assert real.status == 422
    assert differences(shown(real), shown(ours)) == []


@pytest.mark.parametrize("version", ["x", "-1"])
def test_a_get_needs_a_version_that_is_a_number(servers: list[Client], version: str) -> None:
    at = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    real, ours = (client.get(at, query={"resourceVersion": version}) for client in servers)
    assert (real.status, ours.status) == (500, 400)  # a mistake of a client never gets a 5xx here
    assert real.message == ours.message


def test_a_version_that_does_not_exist_yet_cannot_be_read(servers: list[Client]) -> None:
    at = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    for client in servers:
        refused = client.get(at, query={"resourceVersion": "99999999"})
        assert (refused.status, refused.causes[0]["reason"]) == (504, "ResourceVersionTooLarge"), refused


def test_an_update_without_a_version_names_the_resource(servers: list[Client]) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    lease = {"metadata": {"name": "l"}, "spec": {}}
    for client in servers:
        assert client.post(leases, lease).status == 201
    real, ours = (client.put(f"{leases}/l", lease) for client in servers)
    assert real.message.startswith('leases.coordination.k8s.io "l" is invalid')
    assert (real.status, real.message) == (ours.status, ours.message)


def test_keys_that_yaml_sets_twice_are_refused_by_strict_validation(servers: list[Client]) -> None:
    body = b"metadata: {name: a, name: b}\ndata: {k: v}\n"
    for validation, status in (("Strict", 400), ("Warn", 201), ("Ignore", 201)):
        real, ours = (
            client.request(
                "POST",
                f"/api/v1/namespaces/{NAMESPACE}/configmaps",
                body,
                query={"dryRun": "All", "fieldValidation": validation},
                headers={"Content-Type": "application/yaml"},
            )
            for client in servers
        )
        assert real.status == status
        assert differences(shown(real), shown(ours)) == []


def test_responses_about_deprecated_resources_have_a_warning(servers: list[Client]) -> None:
    for at in ("endpoints", "endpoints/nope"):
        real, ours = (client.get(f"/api/v1/namespaces/{NAMESPACE}/{at}") for client in servers)
        assert (
            real.warnings
            == ours.warnings
            == ['299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"']
        )


def test_an_applied_object_with_a_uid_is_not_created(servers: list[Client]) -> None:
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "uid": "x"}}
    real, ours = (
        client.request(
            "PATCH",
            f"/api/v1/namespaces/{NAMESPACE}/configmaps/new",
            applied,
            query={"fieldManager": "odd"},
            headers={"Content-Type": APPLY},
        )
        for client in servers
    )
    assert real.status == 409
    assert differences(shown(real), shown(ours)) == []


def test_finalizers_of_a_namespace_are_validated(servers: list[Client]) -> None:
    namespace = {"metadata": {"name": NAMESPACE}, "spec": {"finalizers": ["x"]}}
    real, ours = (
        client.put(f"/api/v1/namespaces/{NAMESPACE}/finalize", namespace, query={"dryRun": "All"}) for client in servers
    )
    assert real.status == 422
    assert differences(shown(real), shown(ours)) == []


def test_an_error_has_the_warnings_that_were_found_before_it(servers: list[Client]) -> None:
    invalid = {"metadata": {"name": "Bad_"}, "colour": "red"}
    at = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    real, ours = (client.post(at, invalid, query={"fieldValidation": "Warn"}) for client in servers)
    assert (real.status, real.warnings) == (ours.status, ours.warnings) == (422, ['299 - "unknown field \\"colour\\""'])


def test_an_update_of_a_storage_class_is_validated_as_a_whole(servers: list[Client]) -> None:
    at = "/apis/storage.k8s.io/v1/storageclasses"
    obj = {"metadata": {"name": "odd"}, "provisioner": "example.com/p"}
    changed = {**obj, "allowedTopologies": [{"matchLabelExpressions": [{"key": "k", "values": []}]}]}
    answers = []
    for client in servers:
        assert client.post(at, obj).status == 201
        answers.append(client.put(f"{at}/odd", changed))
        client.delete(f"{at}/odd")
    real, ours = answers
    assert real.status == 422
    assert differences(shown(real), shown(ours)) == []


def test_a_client_that_asks_for_yaml_gets_errors_in_yaml(servers: list[Client]) -> None:
    at = f"/api/v1/namespaces/{NAMESPACE}/configmaps/nope"
    real, ours = (client.get(at, headers={"Accept": "application/yaml"}) for client in servers)
    assert (real.status, real.headers["Content-Type"]) == (ours.status, ours.headers["Content-Type"])
    assert yaml.safe_load(real.body) == yaml.safe_load(ours.body)
