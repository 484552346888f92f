"""Points 27 to 30: order, pages, label and field selectors."""

from __future__ import annotations

import base64
import json

import pytest
from tests.conformance.objects import Definitions, Object, Space, config_map, crd, custom, job, path, pod, service
from tests.support.http import Client


def names(listed: Object) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


@pytest.mark.point(27)
def test_lists_are_sorted_by_namespace_and_name_and_carry_the_kind_once(space: Space) -> None:
    for name in ("b", "a", "c", "a.b", "a-b"):
        space.make("secrets", {"metadata": {"name": name}})
    listed = space.api.get(space.path("secrets")).json
    assert (listed["kind"], listed["apiVersion"]) == ("SecretList", "v1")
    assert names(listed) == ["a", "a-b", "a.b", "b", "c"]
    assert not any("kind" in item or "apiVersion" in item for item in listed["items"])
    everywhere = space.api.get("/api/v1/configmaps").json
    # As stored: `a-b/x` comes before `a/x`.
    keys = [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in everywhere["items"]]
    assert keys == sorted(keys)


@pytest.mark.point(28)
def test_pages_are_one_consistent_snapshot(space: Space) -> None:
    for index in range(7):
        space.make("secrets", {"metadata": {"name": f"s{index}"}})
    at = space.path("secrets")
    first = space.api.get(at, query={"limit": 3}).json
    assert names(first) == ["s0", "s1", "s2"]
    assert first["metadata"]["remainingItemCount"] == 4
    space.make("secrets", {"metadata": {"name": "s35"}})
    space.api.delete(f"{at}/s5")
    second = space.api.get(at, query={"limit": 3, "continue": first["metadata"]["continue"]}).json
    assert names(second) == ["s3", "s4", "s5"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert second["metadata"]["remainingItemCount"] == 1
    last = space.api.get(at, query={"limit": 3, "continue": second["metadata"]["continue"]}).json
    assert names(last) == ["s6"]
    assert not {"continue", "remainingItemCount"} & last["metadata"].keys()
    assert names(space.api.get(at).json) == ["s0", "s1", "s2", "s3", "s35", "s4", "s6"]


@pytest.mark.point(28)
def test_pages_of_a_selection_do_not_count_what_remains(space: Space) -> None:
    for index in range(6):
        space.make("secrets", {"metadata": {"name": f"s{index}", "labels": {"even": str(index % 2 == 0).lower()}}})
    query = {"limit": 2, "labelSelector": "even=true"}
    first = space.api.get(space.path("secrets"), query=query).json
    assert names(first) == ["s0", "s2"]
    assert "remainingItemCount" not in first["metadata"]
    second = space.api.get(space.path("secrets"), query=query | {"continue": first["metadata"]["continue"]}).json
    assert names(second) == ["s4"]


@pytest.mark.point(28)
def test_bad_page_parameters_are_rejected(space: Space) -> None:
    at = space.path("secrets")
    for query in ({"continue": "garbage"}, {"continue": base64.b64encode(b"{}").decode()}, {"limit": "x"}):
        refused = space.api.get(at, query=query)
        assert (refused.status, refused.reason) == (400, "BadRequest"), refused
    space.make("secrets", {"metadata": {"name": "a"}})
    space.make("secrets", {"metadata": {"name": "b"}})
    token = space.api.get(at, query={"limit": 1}).json["metadata"]["continue"]
    refused = space.api.get(at, query={"continue": token, "resourceVersion": "5"})
    assert refused.status == 400, refused


@pytest.mark.point(28)
def test_version_matching_of_lists_follows_the_rules(space: Space) -> None:
    space.make("secrets", {"metadata": {"name": "a"}})
    at = space.path("secrets")
    before = space.api.get(at).json["metadata"]["resourceVersion"]
    space.make("secrets", {"metadata": {"name": "b"}})
    # "0" means any version will do, so the newest object may still be missing.
    assert names(space.api.get(at, query={"resourceVersion": "0"}).json)[:1] == ["a"]
    exact = space.api.get(at, query={"resourceVersion": before, "resourceVersionMatch": "Exact"}).json
    assert (names(exact), exact["metadata"]["resourceVersion"]) == (["a"], before)
    newer = space.api.get(at, query={"resourceVersion": before, "resourceVersionMatch": "NotOlderThan"}).json
    assert names(newer) == ["a", "b"]
    for query in (
        {"resourceVersionMatch": "Exact"},
        {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
        {"resourceVersion": before, "resourceVersionMatch": "Sometimes"},
    ):
        refused = space.api.get(at, query=query)
        assert (refused.status, refused.reason) == (422, "Invalid"), refused
    refused = space.api.get(at, query={"resourceVersion": "abc"})
    assert (refused.status, refused.reason) == (400, "BadRequest"), refused
    future = space.api.get(at, query={"resourceVersion": "999999999"})
    assert (future.status, future.reason) == (504, "Timeout"), future
    assert future.message.startswith("Timeout: Too large resource version: 999999999, current: ")
    assert future.causes == [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]


def encoded(token: Object) -> str:
    return base64.urlsafe_b64encode(json.dumps(token).encode()).rstrip(b"=").decode()


KEY = "invalid continue token: continue key is not valid: "
BAD_PAGES = [
    ({"continue": "x"}, KEY + "illegal base64 data at input byte 0"),
    ({"continue": "a b"}, KEY + "illegal base64 data at input byte 1"),
    ({"continue": "x", "resourceVersion": "5"}, KEY + "illegal base64 data at input byte 0"),
    (
        {"continue": encoded({"v": "v9", "rv": 5, "start": "a\0"})},
        KEY + "server does not recognize this encoded version v9",
    ),
    (
        {"continue": encoded({"v": "meta.k8s.io/v1", "start": "a\0"})},
        KEY + "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
    ),
    (
        {"continue": encoded({"v": "meta.k8s.io/v1", "rv": 5})},
        KEY + "encoded start key empty (version meta.k8s.io/v1)",
    ),
    (
        {"resourceVersion": "x"},
        'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax',
    ),
    (
        {"resourceVersion": "18446744073709551616"},
        'invalid resource version: resourceVersion: Invalid value: "18446744073709551616": strconv.ParseUint: parsing '
        '"18446744073709551616": value out of range',
    ),
]


@pytest.mark.point(28)
@pytest.mark.parametrize(("query", "message"), BAD_PAGES)
def test_the_message_says_what_is_wrong_with_a_page(space: Space, query: dict[str, str], message: str) -> None:
    refused = space.api.get(space.path("secrets"), query=query)
    assert (refused.status, refused.reason, refused.message) == (400, "BadRequest", message)


LABELS = [
    ("app=x", {"a", "b"}),
    ("app==x", {"a", "b"}),
    ("app!=x", {"c", "none"}),
    ("app in (x,y)", {"a", "b", "c"}),
    ("app  in  ( x , y )", {"a", "b", "c"}),
    ("app notin (x)", {"c", "none"}),
    ("app", {"a", "b", "c"}),
    ("!app", {"none"}),
    ("app=x,tier=1", {"a"}),
    ("app=x, tier!=1", {"b"}),
    ("n>4", {"c"}),
    ("n<4", {"b"}),
    ("app in (x),tier", {"a"}),
    ("tier=", set()),
    ("", {"a", "b", "c", "none"}),
]


@pytest.mark.point(29)
def test_label_selectors_select_as_written(space: Space) -> None:
    for name, labels in (
        ("a", {"app": "x", "tier": "1"}),
        ("b", {"app": "x", "n": "3"}),
        ("c", {"app": "y", "n": "5"}),
        ("none", {}),
    ):
        space.make("secrets", {"metadata": {"name": name, "labels": labels}})
    for selector, expected in LABELS:
        listed = space.api.get(space.path("secrets"), query={"labelSelector": selector}).json
        assert set(names(listed)) == expected, selector


@pytest.mark.point(29)
@pytest.mark.parametrize("selector", ["app=x y", "a in", "a in x", "=x", "a,,b", "a=b=c", "-a=b", "n>x", "!a=b", "(a)"])
def test_a_bad_label_selector_is_a_bad_request(space: Space, selector: str) -> None:
    refused = space.api.get(space.path("secrets"), query={"labelSelector": selector})
    assert (refused.status, refused.reason) == (400, "BadRequest"), refused


POD_FIELDS = [
    ("metadata.name=one", {"one"}),
    ("metadata.name==one", {"one"}),
    ("metadata.name!=one", {"two"}),
    ("spec.nodeName=n1", {"two"}),
    ("spec.nodeName=", {"one"}),
    ("spec.restartPolicy=Never", {"two"}),
    ("spec.schedulerName=mine", {"two"}),
    ("spec.serviceAccountName=default", {"one", "two"}),
    ("spec.hostNetwork=true", {"two"}),
    ("spec.hostNetwork=false", {"one"}),
    ("status.phase=Pending", {"one"}),
    ("status.phase!=Pending,spec.nodeName=n1", {"two"}),
    ("status.podIP=10.1.2.3", {"two"}),
    ("status.nominatedNodeName=n9", {"two"}),
]


@pytest.mark.point(30)
def test_pods_select_by_their_fields(space: Space) -> None:
    space.make("pods", pod("one"))
    spec = {"nodeName": "n1", "restartPolicy": "Never", "schedulerName": "mine", "hostNetwork": True}
    space.make("pods", pod("two", spec=spec))
    status = {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "nominatedNodeName": "n9"}
    assert space.api.patch(space.path("pods", "two", "status"), {"status": status}).status == 200
    at = space.path("pods")
    for selector, expected in (*POD_FIELDS, (f"metadata.namespace={space.name}", {"one", "two"})):
        assert set(names(space.api.get(at, query={"fieldSelector": selector}).json)) == expected, selector
    refused = space.api.get(at, query={"fieldSelector": "spec.priority=0"})
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert "field label not supported: spec.priority" in refused.message
    refused = space.api.get(at, query={"fieldSelector": "metadata.name"})
    assert (refused.status, refused.reason) == (400, "BadRequest")


@pytest.mark.point(30)
def test_other_kinds_select_by_their_fields(api: Client, space: Space) -> None:
    space.make("jobs", job("j", spec={"suspend": True}))
    space.make("secrets", {"metadata": {"name": "s"}, "type": "example.com/kind"})
    space.make("services", service("none", spec={"clusterIP": "None"}))
    api.post("/api/v1/nodes", {"metadata": {"name": "node-30"}, "spec": {"unschedulable": True}})
    reference = {"kind": "Pod", "namespace": space.name, "name": "p", "uid": "u-1", "apiVersion": "v1"}
    reference |= {"resourceVersion": "7", "fieldPath": "spec.containers{main}"}
    space.make(
        "events",
        {
            "metadata": {"name": "e"},
            "involvedObject": reference,
            "reason": "Started",
            "type": "Normal",
            "source": {"component": "me"},
            "reportingComponent": "me",
        },
    )
    selected = [
        (space.path("jobs"), "status.successful=0", "j"),
        (space.path("secrets"), "type=example.com/kind", "s"),
        (space.path("services"), "spec.clusterIP=None", "none"),
        (space.path("services"), "spec.type=ClusterIP", "none"),
        (path("nodes"), "spec.unschedulable=true,metadata.name=node-30", "node-30"),
        (path("namespaces"), f"status.phase=Active,metadata.name={space.name}", space.name),
        *((space.path("events"), f"involvedObject.{key}={value}", "e") for key, value in reference.items()),
        (space.path("events"), "reason=Started", "e"),
        (space.path("events"), "type=Normal", "e"),
        (space.path("events"), "source=me", "e"),
        (space.path("events"), "reportingComponent=me", "e"),
    ]
    for at, selector, name in selected:
        answer = api.get(at, query={"fieldSelector": selector})
        assert answer.status == 200, (selector, answer)
        assert names(answer.json) == [name], selector
        negated = selector.split(",")[0].replace("=", "!=", 1)
        assert name not in names(api.get(at, query={"fieldSelector": negated}).json) or "," in selector, negated
    refused = api.get(space.path("configmaps"), query={"fieldSelector": "data.a=1"})
    assert (refused.status, '"data.a" is not a known field selector' in refused.message) == (400, True), refused


@pytest.mark.point(30)
def test_custom_resources_select_by_the_selectable_fields_of_their_definition(space: Space, crds: Definitions) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}},
    }
    version = {"schema": {"openAPIV3Schema": schema}, "selectableFields": [{"jsonPath": ".spec.color"}]}
    crds.create(crd("gadgets", version=version))
    at = space.path("gadgets", group="test.torchyard.dev/v1")
    for name, color in (("a", "red"), ("b", "blue")):
        assert space.api.post(at, custom("Gadget", name, spec={"color": color})).status == 201
    assert names(space.api.get(at, query={"fieldSelector": "spec.color=red"}).json) == ["a"]
    assert names(space.api.get(at, query={"fieldSelector": "metadata.name=b"}).json) == ["b"]
    refused = space.api.get(at, query={"fieldSelector": "spec.size=1"})
    assert (refused.status, refused.reason) == (400, "BadRequest")


@pytest.mark.point(30)
def test_label_and_field_selectors_combine(space: Space) -> None:
    for name in ("a", "b"):
        space.make("configmaps", config_map(name, labels={"l": name}))
    query = {"labelSelector": "l in (a,b)", "fieldSelector": "metadata.name!=a"}
    assert names(space.api.get(space.path("configmaps"), query=query).json) == ["b"]
    assert json.loads(space.api.get(space.path("configmaps"), query=query).body)["kind"] == "ConfigMapList"
