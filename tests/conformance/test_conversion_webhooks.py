"""Custom resources whose versions a webhook converts. The messages are those of kube-apiserver 1.34."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.objects import Definitions, Space
from tests.support.conversion import ConversionWebhook, Object, definition
from tests.support.http import Client
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

GROUP = "conversion.torchyard.dev"
FAILED = f"conversion webhook for {GROUP}/v1, Kind=Listener failed: "
RETURNED = f"conversion webhook for {GROUP}/v1, Kind=Listener returned "
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


class Listeners:
    """The custom resources of a test."""

    def __init__(self, api: Client, namespace: str, webhook: ConversionWebhook) -> None:
        self.api, self.namespace, self.webhook = api, namespace, webhook

    def path(self, version: str, name: str = "") -> str:
        path = f"/apis/{GROUP}/{version}/namespaces/{self.namespace}/listeners"
        return f"{path}/{name}" if name else path

    def create(self, version: str, name: str, **spec: str) -> Any:
        body = {"apiVersion": f"{GROUP}/{version}", "kind": "Listener", "metadata": {"name": name}, "spec": spec}
        return self.api.post(self.path(version), body)

    def spec(self, version: str, name: str) -> Object:
        obj = self.api.get(self.path(version, name)).json
        assert obj["apiVersion"] == f"{GROUP}/{version}", obj
        result: Object = obj["spec"]
        return result


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[ConversionWebhook]:
    running = ConversionWebhook(tmp_path / "webhook")
    yield running
    running.change, running.status = lambda review: review, 200
    running.close()


@pytest.fixture
def listeners(webhook: ConversionWebhook, crds: Definitions, space: Space) -> Listeners:
    crds.create(definition(webhook))
    return Listeners(space.api, space.name, webhook)


def test_every_verb_converts(listeners: Listeners) -> None:
    api = listeners.api
    assert listeners.create("v1", "a", hostPort="h:1").json["spec"] == {"hostPort": "h:1"}
    created = listeners.create("v2", "b", host="x", port="2")
    assert (created.status, created.json["apiVersion"], created.json["spec"]["port"]) == (201, f"{GROUP}/v2", "2")
    assert listeners.spec("v2", "a") == {"host": "h", "port": "1"}
    assert listeners.spec("v1", "b")["hostPort"] == "x:2"
    items = api.get(listeners.path("v2")).json["items"]
    assert [item["spec"]["host"] for item in items] == ["h", "x"]
    assert {item["apiVersion"] for item in items} == {f"{GROUP}/v2"}
    assert len(api.get(listeners.path("v2"), headers=TABLE).json["rows"]) == 2
    obj = api.get(listeners.path("v2", "a")).json
    obj["spec"]["port"] = "77"
    replaced = api.put(listeners.path("v2", "a"), obj)
    assert (replaced.json["spec"]["port"], replaced.json["metadata"]["generation"]) == ("77", 2)
    assert listeners.spec("v1", "a")["hostPort"] == "h:77"
    assert api.patch(listeners.path("v2", "a"), {"spec": {"host": "p"}}).json["spec"]["host"] == "p"
    assert api.apply(listeners.path("v2", "a"), api_object("v2", "a", host="q"), "other").status == 409
    applied = api.apply(listeners.path("v2", "new"), api_object("v2", "new", host="q", port="3"))
    assert applied.status == 201, applied
    assert listeners.spec("v1", "new")["hostPort"] == "q:3"
    stale = api.put(listeners.path("v2", "a"), obj)
    assert (stale.status, stale.reason) == (409, "Conflict")
    deleted = api.delete(listeners.path("v2", "a"))
    assert deleted.status == 200
    assert api.get(listeners.path("v1", "a")).status == 404


def api_object(version: str, name: str, **spec: str) -> Object:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Listener", "metadata": {"name": name}, "spec": spec}


def test_the_status_is_converted_too(listeners: Listeners) -> None:
    listeners.create("v1", "a", hostPort="h:1")
    path = f"{listeners.path('v2', 'a')}/status"
    changed = listeners.api.patch(path, {"status": {"ready": True}, "spec": {"host": "ignored"}})
    assert (changed.json["status"], changed.json["spec"]["host"]) == ({"ready": True}, "h")
    assert listeners.api.get(listeners.path("v1", "a")).json["status"] == {"ready": True}


def test_a_watch_has_objects_of_its_version(listeners: Listeners) -> None:
    api = listeners.api
    listeners.create("v1", "a", hostPort="h:1")
    with api.watch(listeners.path("v2")) as watch:
        assert watch.next()["object"]["spec"]["host"] == "h"
        listeners.create("v1", "b", hostPort="i:2")
        api.patch(listeners.path("v1", "b"), {"spec": {"hostPort": "j:3"}})
        api.delete(listeners.path("v1", "b"))
        events = watch.take(3)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event["object"]["spec"]["host"] for event in events] == ["i", "j", "j"]
    assert {event["object"]["apiVersion"] for event in events} == {f"{GROUP}/v2"}


def names(response: Any) -> list[str]:
    assert response.status == 200, response
    return [item["metadata"]["name"] for item in response.json["items"]]


def test_selectors_apply_to_the_converted_objects(listeners: Listeners) -> None:
    """The selectable fields of a version are its own, and a webhook may change labels."""
    api = listeners.api

    def label(answer: Object) -> None:
        for obj in answer["response"]["convertedObjects"]:
            obj["metadata"]["labels"] = {"version": obj["apiVersion"].rpartition("/")[2]}

    listeners.webhook.change = changing(label)
    for name, address in {"a": "h:1", "b": "i:1", "c": "h:2"}.items():
        listeners.create("v1", name, hostPort=address)
    for selector, expected in {
        "spec.host=h": ["a", "c"],
        "spec.host=h,spec.port!=1": ["c"],
        "spec.port=1": ["a", "b"],
        "spec.host=h:1": [],
        "metadata.name=b,spec.host=i": ["b"],
    }.items():
        assert names(api.get(listeners.path("v2"), query={"fieldSelector": selector})) == expected, selector
    assert names(api.get(listeners.path("v1"), query={"fieldSelector": "spec.hostPort=h:2"})) == ["c"]
    assert names(api.get(listeners.path("v2"), query={"labelSelector": "version=v2"})) == ["a", "b", "c"]
    assert names(api.get(listeners.path("v2"), query={"labelSelector": "version=v1"})) == []
    refused = api.get(listeners.path("v2"), query={"fieldSelector": "spec.hostPort=h:1"})
    assert (refused.status, refused.message) == (400, "field label not supported: spec.hostPort")
    page = api.get(listeners.path("v2"), query={"fieldSelector": "spec.host=h", "limit": 1})
    token = page.json["metadata"]["continue"]
    rest = api.get(listeners.path("v2"), query={"fieldSelector": "spec.host=h", "limit": 1, "continue": token})
    assert (names(page), names(rest)) == (["a"], ["c"])


def test_a_watch_selects_converted_objects(listeners: Listeners) -> None:
    api = listeners.api
    listeners.create("v1", "a", hostPort="h:1")
    listeners.create("v1", "b", hostPort="i:1")
    with api.watch(listeners.path("v2"), query={"fieldSelector": "spec.host=h"}) as watch:
        first = watch.next()
        listeners.create("v1", "c", hostPort="h:3")
        api.patch(listeners.path("v1", "b"), {"spec": {"hostPort": "h:2"}})
        api.patch(listeners.path("v1", "b"), {"spec": {"hostPort": "h:22"}})
        api.patch(listeners.path("v1", "a"), {"spec": {"hostPort": "j:1"}})
        api.patch(listeners.path("v1", "a"), {"spec": {"hostPort": "j:2"}})
        api.delete(listeners.path("v1", "b"))
        events = watch.take(5)
    version = first["object"]["metadata"]["resourceVersion"]
    with api.watch(listeners.path("v2"), query={"fieldSelector": "spec.host=h", "resourceVersion": version}) as watch:
        again = watch.take(5)
    assert [(e["type"], e["object"]["metadata"]["name"], e["object"]["spec"]["port"]) for e in [first, *events]] == [
        ("ADDED", "a", "1"),
        ("ADDED", "c", "3"),
        ("ADDED", "b", "2"),
        ("MODIFIED", "b", "22"),
        ("DELETED", "a", "1"),
        ("DELETED", "b", "22"),
    ]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in again] == [
        (e["type"], e["object"]["metadata"]["name"]) for e in events
    ]


def test_every_version_has_selectable_fields_of_its_own(crds: Definitions, space: Space) -> None:
    """Without a webhook, too, and they may change: what was read for one version is not used for another."""
    text = {"type": "string"}
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "description": name,
                    "properties": {"spec": {"type": "object", "properties": {"a": text, "b": text}}},
                }
            },
            "selectableFields": [{"jsonPath": f".spec.{field}"}],
        }
        for name, field in (("v1", "a"), ("v2", "b"))
    ]
    crd = {"kind": "Pair", "plural": "pairs"}
    group = "fields.torchyard.dev"
    crds.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"pairs.{group}"},
            "spec": {"group": group, "names": crd, "scope": "Namespaced", "versions": versions},
        }
    )
    paths = {version: f"/apis/{group}/{version}/namespaces/{space.name}/pairs" for version in ("v1", "v2")}
    body = {"apiVersion": f"{group}/v1", "kind": "Pair", "metadata": {"name": "p"}, "spec": {"a": "1", "b": "2"}}
    assert space.api.post(paths["v1"], body).status == 201
    for version, selector in (("v1", "spec.a=1"), ("v2", "spec.b=2"), ("v1", "spec.a=1")):
        assert names(space.api.get(paths[version], query={"fieldSelector": selector})) == ["p"]


def test_the_storage_version_can_change(listeners: Listeners, crds: Definitions) -> None:
    listeners.create("v1", "a", hostPort="h:1")
    name = definition(listeners.webhook)["metadata"]["name"]
    current = crds.get(name)
    current["spec"]["versions"] = definition(listeners.webhook, storage="v2")["spec"]["versions"]
    changed = crds.api.put(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", current)
    assert changed.json["status"]["storedVersions"] == ["v1", "v2"]
    assert listeners.spec("v2", "a")["host"] == "h"
    listeners.create("v1", "b", hostPort="i:2")
    assert listeners.spec("v1", "a")["hostPort"] == "h:1"
    assert [item["spec"]["host"] for item in crds.api.get(listeners.path("v2")).json["items"]] == ["h", "i"]


def changing(change: Callable[[Object], Any]) -> Callable[[Object], Object]:
    """An answer that is changed in place."""

    def changed(review: Object) -> Object:
        change(review)
        return review

    return changed


def changing_objects(change: Callable[[Object], Any]) -> Callable[[Object], Object]:
    return changing(lambda review: [change(obj) for obj in review["response"]["convertedObjects"]])


BAD_ANSWERS: dict[str, tuple[Callable[[Object], Object | bytes], str]] = {
    "not JSON": (lambda _: b"text", f"{FAILED}couldn't get version/kind; json parse error: json: cannot unmarshal"),
    "empty": (
        lambda _: b"",
        f"{FAILED}0-length response with status code: 200 and content type: application/json",
    ),
    "no response": (changing(lambda review: review.pop("response")), f"{FAILED}no response provided"),
    "another uid": (changing(lambda review: review["response"].update(uid="u")), f'{FAILED}expected response.uid="'),
    "another kind": (
        changing(lambda review: review.update(kind="Foo")),
        f'{FAILED}no kind "Foo" is registered for version "apiextensions.k8s.io/v1" in scheme',
    ),
    "a refusal": (
        changing(lambda review: review["response"].update(result={"status": "Failure", "message": "not today"})),
        f"{FAILED}not today",
    ),
    "a refusal without a message": (
        changing(lambda review: review["response"].update(result={"status": "Failure"})),
        f"{FAILED}response.result.status was 'Failure', not 'Success'",
    ),
    "no result": (
        changing(lambda review: review["response"].pop("result")),
        f"{FAILED}response.result.status was '', not 'Success'",
    ),
    "no objects": (
        changing(lambda review: review["response"].update(convertedObjects=[])),
        f"{RETURNED}0 objects, expected 1",
    ),
    "too many objects": (
        changing(lambda review: review["response"]["convertedObjects"].append({})),
        f"{RETURNED}2 objects, expected 1",
    ),
    "another version": (
        changing_objects(lambda obj: obj.update(apiVersion="x/v9")),
        f"{RETURNED}invalid object at index 0: invalid groupVersion (expected {GROUP}/v2, received x/v9)",
    ),
    "objects of another kind": (
        changing_objects(lambda obj: obj.update(kind="Other")),
        f"{RETURNED}invalid object at index 0: invalid kind (expected Listener, received Other)",
    ),
    "another name": (
        changing_objects(lambda obj: obj["metadata"].update(name="b")),
        f"{RETURNED}invalid object: must have the same name: a != b",
    ),
    "no metadata": (
        changing_objects(lambda obj: obj.pop("metadata")),
        f"{RETURNED}invalid object: must have the same name: a != ",
    ),
    "a label that is not a string": (
        changing_objects(lambda obj: obj["metadata"].update(labels={"a": 1})),
        f"{RETURNED}invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
    ),
    "an invalid label": (
        changing_objects(lambda obj: obj["metadata"].update(labels={"a b": "1"})),
        f'{RETURNED}invalid metadata: metadata.labels: Invalid value: "a b": name part must consist of',
    ),
    "a string": (
        changing(lambda review: review["response"].update(convertedObjects=["x"])),
        "json: cannot unmarshal string into Go value of type map[string]interface {}",
    ),
}


def test_wrong_answers_are_refused(listeners: Listeners) -> None:
    listeners.create("v1", "a", hostPort="h:1")
    for name, (change, message) in BAD_ANSWERS.items():
        listeners.webhook.change = change
        refused = listeners.api.get(listeners.path("v2", "a"))
        assert (refused.status, refused.json.get("reason")) == (500, None), name
        assert refused.message.startswith(message), name
        refused = listeners.create("v2", "new", host="h")
        assert refused.status == 500, name
    assert listeners.api.get(listeners.path("v1", "new")).status == 404
    listeners.webhook.change, listeners.webhook.status = lambda review: review, 503
    refused = listeners.api.get(listeners.path("v2", "a"))
    assert refused.message == f"{FAILED}the server is currently unable to handle the request"


def test_a_webhook_changes_labels_and_annotations_only(listeners: Listeners) -> None:
    created = listeners.create("v1", "a", hostPort="h:1").json["metadata"]

    def change(obj: Object) -> None:
        obj["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["x/y"], "generation": 9}
        obj["spec"]["unknown"] = 1

    listeners.webhook.change = changing_objects(change)
    obj = listeners.api.get(listeners.path("v2", "a")).json
    assert obj["spec"] == {"host": "h", "port": "1"}
    assert obj["metadata"] == created | {"labels": {"a": "b"}, "annotations": {"c": "d"}}


def test_objects_of_a_definition_whose_webhook_is_gone_are_deleted_with_it(
    yard: Server, webhook: ConversionWebhook
) -> None:
    definitions = Definitions(yard.admin)
    definitions.create(definition(webhook))
    yard.admin.post(f"/apis/{GROUP}/v2/namespaces/default/listeners", api_object("v2", "a", host="h"))
    webhook.status = 500
    assert yard.admin.get(f"/apis/{GROUP}/v2/namespaces/default/listeners/a").status == 500
    definitions.remove()


def test_an_admission_webhook_for_another_version_gets_a_converted_object(listeners: Listeners) -> None:
    webhook, api = listeners.webhook, listeners.api
    seen: list[Object] = []

    def admit(review: Object) -> Object:
        request = review["request"]
        seen.append(request["object"])
        patch = json.dumps([{"op": "replace", "path": "/spec/port", "value": "99"}])
        response = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch"}
        return {**review, "response": {**response, "patch": base64.b64encode(patch.encode()).decode()}}

    webhook.admit = admit
    rule = {"apiGroups": [GROUP], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["listeners"]}
    name = f"mutate-{listeners.namespace}"
    configuration = {
        "metadata": {"name": name},
        "webhooks": [
            {
                **{"name": "mutate.torchyard.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"]},
                "clientConfig": {"url": webhook.url, "caBundle": webhook.authority},
                "rules": [rule],
            }
        ],
    }
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    assert api.post(path, configuration).status == 201
    names, changed = (f"a{number}" for number in range(1000)), {"hostPort": "h:99"}
    try:
        eventually(lambda: listeners.create("v1", next(names), hostPort="h:1").json["spec"] == changed, "the webhook")
    finally:
        api.delete(f"{path}/{name}")
    assert (seen[0]["apiVersion"], seen[0]["spec"]) == (f"{GROUP}/v2", {"host": "h", "port": "1"})
