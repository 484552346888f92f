"""Corner cases in which the two servers once differed, beyond the points of the list."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.objects import Space, path
from tests.support.http import APPLY, JSON_PATCH, STRATEGIC, Client
from tests.support.waiting import eventually

POLICIES = path("validatingadmissionpolicies", group="admissionregistration.k8s.io/v1")


def policy(resources: list[str]) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources}
    match = {"resourceRules": [rule], "namespaceSelector": {"matchLabels": {"nobody": "has-this"}}}
    return {
        "metadata": {"generateName": "corner-"},
        "spec": {"matchConstraints": match, "validations": [{"expression": "true"}]},
    }


@pytest.mark.parametrize(
    ("resources", "refused"),
    [
        (["pods", "*"], ""),
        (["*", "pods/status"], ""),
        (["pods/status", "pods/*"], ""),
        (["pods/*", "pods/status"], "if 'pods/*' is present, must not specify pods/status"),
        (["*/status", "pods/status"], "if '*/status' is present, must not specify pods/status"),
        (["pods", "*/*"], "if '*/*' is present, must not specify other resources"),
    ],
)
def test_which_resources_an_admission_rule_may_name(api: Client, resources: list[str], refused: str) -> None:
    answer = api.post(f"{POLICIES}?dryRun=All", policy(resources))
    assert answer.status == (422 if refused else 201), answer
    assert refused in (answer.message if refused else "")


@pytest.mark.parametrize(
    ("plural", "status"), [("nodes", 400), ("namespaces", 400), ("persistentvolumes", 200), ("pods", 200)]
)
def test_which_kinds_can_be_selected_by_namespace(api: Client, plural: str, status: int) -> None:
    answer = api.get(f"/api/v1/{plural}", query={"fieldSelector": "metadata.namespace=x"})
    assert answer.status == status, answer
    if status == 400:
        assert answer.message == "field label not supported: metadata.namespace"


def test_a_new_node_is_not_ready(api: Client) -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    own = {"key": "mine", "effect": "NoExecute"}
    created = api.post("/api/v1/nodes?dryRun=All", {"metadata": {"name": "n"}, "spec": {"taints": [own]}})
    assert created.json["spec"]["taints"] == [own, taint]
    again = api.post("/api/v1/nodes?dryRun=All", {"metadata": {"name": "n"}, "spec": {"taints": [taint]}})
    assert again.json["spec"]["taints"] == [taint]


def test_a_name_that_is_given_up_goes_to_who_wanted_it(api: Client) -> None:
    def wants(plural: str) -> dict[str, Any]:
        names = {"plural": plural, "kind": plural.title(), "shortNames": ["corner"]}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        spec = {"group": "corners.torchyard.dev", "scope": "Namespaced", "names": names, "versions": [version]}
        return {"metadata": {"name": f"{plural}.corners.torchyard.dev"}, "spec": spec}

    definitions = path("customresourcedefinitions", group="apiextensions.k8s.io/v1")

    def accepted(plural: str) -> str:
        status = api.get(f"{definitions}/{plural}.corners.torchyard.dev").json.get("status") or {}
        result = status.get("conditions") or ()
        return next((str(item["status"]) for item in result if item["type"] == "NamesAccepted"), "")

    assert api.post(definitions, wants("firsts")).status == 201
    eventually(lambda: accepted("firsts") == "True", "the first one's names")
    assert api.post(definitions, wants("seconds")).status == 201
    try:
        eventually(lambda: accepted("seconds") == "False", "the conflict")
    finally:
        api.delete(f"{definitions}/firsts.corners.torchyard.dev")
    eventually(lambda: accepted("seconds") == "True", "the name that was given up")
    api.delete(f"{definitions}/seconds.corners.torchyard.dev")


EVENT = {
    "metadata": {"name": "e"},
    "regarding": {"kind": "Pod", "name": "p"},
    "note": "hello",
    "reportingController": "torchyard.dev/tests",
    "reportingInstance": "here",
    "action": "Act",
    "reason": "Reason",
    "type": "Normal",
    "eventTime": "2026-01-01T00:00:00.000000Z",
}


def test_a_new_event_is_recorded_by_its_own_names_and_keeps_what_it_said(space: Space) -> None:
    events = space.path("events", group="events.k8s.io/v1")
    regarding = {"kind": "Pod", "name": "p", "namespace": space.name}
    created = space.api.post(events, {**EVENT, "regarding": regarding})
    assert created.status == 201, created
    (record,) = created.json["metadata"]["managedFields"]
    expected: dict[str, Any] = {f"f:{name}": {} for name in EVENT if name != "metadata"}
    assert (record["apiVersion"], record["fieldsV1"]) == ("events.k8s.io/v1", expected)
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}
    assert space.api.patch(f"{events}/e", {"series": series}).status == 200
    for field, value, message in (("note", "ho", "message"), ("reportingController", "a/b", "reportingController")):
        changed = space.api.patch(f"{events}/e", {field: value})
        assert (changed.status, [item["field"] for item in changed.causes]) == (422, [message])


def test_an_empty_list_is_owned_until_it_is_stored_as_null(space: Space) -> None:
    roles = space.path("roles", group="rbac.authorization.k8s.io/v1")
    created = space.api.post(roles, {"metadata": {"name": "r"}, "rules": []}, query={"fieldManager": "first"})
    assert created.json["rules"] is None
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    expected = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r"},
        "rules": [rule],
    }
    query, headers = {"fieldManager": "second"}, {"Content-Type": APPLY}
    refused = space.api.request("PATCH", f"{roles}/r", expected, query=query, headers=headers)
    assert (refused.status, [item["field"] for item in refused.causes]) == (409, [".rules"])
    limits = space.api.post(space.path("limitranges"), {"metadata": {"name": "l"}, "spec": {"limits": []}})
    assert limits.json["spec"] == {"limits": None}
    slices = space.path("endpointslices", group="discovery.k8s.io/v1")
    endpoint_slice = space.api.post(
        slices, {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [], "ports": []}
    )
    assert (endpoint_slice.json["endpoints"], endpoint_slice.json["ports"]) == (None, None)


JOB_LABELS = ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"]


@pytest.mark.parametrize(
    ("own", "template", "wanted"),
    [
        (None, None, JOB_LABELS),
        ({}, {"app": "a"}, ["app", *JOB_LABELS]),
        ({"app": "a"}, {"app": "a"}, ["app"]),
        ({"app": "b"}, None, ["app"]),
    ],
)
def test_a_job_takes_its_templates_labels_only_where_it_has_none(
    space: Space, own: dict[str, str] | None, template: dict[str, str] | None, wanted: list[str]
) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}
    spec = {"suspend": True, "template": {"metadata": {"labels": template}, "spec": pod}}
    jobs = space.path("jobs", group="batch/v1")
    created = space.api.post(jobs, {"metadata": {"name": "j", "labels": own}, "spec": spec})
    assert sorted(created.json["metadata"]["labels"]) == wanted


def test_node_ports_are_numbers_whatever_the_protocol(space: Space) -> None:
    services = space.path("services")
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}, {"name": "c", "port": 81}]
    created = space.api.post(services, {"metadata": {"name": "one"}, "spec": {"type": "NodePort", "ports": ports}})
    first, second, third = (port["nodePort"] for port in created.json["spec"]["ports"])
    assert first == second != third
    other = {"type": "NodePort", "ports": [{"port": 80, "protocol": "UDP", "nodePort": first}]}
    taken = space.api.post(services, {"metadata": {"name": "two"}, "spec": other})
    assert taken.message.endswith(f"spec.ports[0].nodePort: Invalid value: {first}: provided port is already allocated")
    wrong = {"clusterIP": "192.0.2.7", "ports": []}
    outside = space.api.post(services, {"metadata": {"name": "Three"}, "spec": wrong})
    assert [item["field"] for item in outside.causes] == ["spec.clusterIPs"]


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ({"spec": {"hostNetwork": "yes"}}, "unrecognized type: bool"),
        ({"spec": {"restartPolicy": 3}}, "cannot convert int64 to v1.RestartPolicy"),
        ({"spec": {"activeDeadlineSeconds": 1.5}}, "cannot convert float64 to int64"),
        ({"spec": "x"}, "cannot restore struct from: string"),
        ({"metadata": {"labels": [1]}}, "cannot restore map from slice"),
        ({"metadata": {"finalizers": {"a": 1}}}, "cannot restore slice from map"),
    ],
)
def test_a_strategic_patch_of_a_wrong_type_says_which(space: Space, patch: dict[str, Any], why: str) -> None:
    pods = space.path("pods")
    space.api.post(pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}]}})
    refused = space.api.request("PATCH", f"{pods}/p", patch, headers={"Content-Type": STRATEGIC})
    assert refused.status == 422
    assert refused.message.endswith(f": {why}"), refused


@pytest.mark.parametrize(("value", "status"), [("x", 200), (None, 200), ([], 422), ({}, 400)])
def test_a_json_patch_of_the_whole_document(space: Space, value: Any, status: int) -> None:
    maps = space.path("configmaps")
    space.api.post(maps, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    operation = [{"op": "replace", "path": "", "value": value}]
    answer = space.api.request("PATCH", f"{maps}/m", operation, headers={"Content-Type": JSON_PATCH})
    assert answer.status == status, answer
    assert space.api.get(f"{maps}/m").json["data"] == {"a": "1"}


def test_a_role_made_of_others_shows_their_rules(api: Client, space: Space) -> None:
    roles, rule = path("clusterroles"), {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    whole, part = f"{space.name}-whole", f"{space.name}-part"
    selectors = [{"matchLabels": {"corner": space.name}}]
    created = api.post(roles, {"metadata": {"name": whole}, "aggregationRule": {"clusterRoleSelectors": selectors}})
    assert created.status == 201, created
    api.post(roles, {"metadata": {"name": part, "labels": {"corner": space.name}}, "rules": [rule]})
    eventually(lambda: api.get(f"{roles}/{whole}").json["rules"] == [rule], "the rules")
    api.delete(f"{roles}/{part}")
    eventually(lambda: api.get(f"{roles}/{whole}").json["rules"] is None, "no rules")
    api.delete(f"{roles}/{whole}")
