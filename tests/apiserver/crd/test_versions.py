"""Two versions of one kind, conversion None: the same on our server and on a real one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.http import Client

from torchyard.api.objects import Object
from torchyard.apiserver.crd.conversion.webhook import _batches

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STRING: Object = {"type": "string"}
DEPRECATED = '299 - "example.com/v1beta1 Multi is deprecated; use example.com/v1 Multi"'


def schema(**fields: Object) -> Object:
    spec = {"type": "object", "properties": fields}
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}


DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "multis.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "multis", "kind": "Multi"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": schema(a=STRING, b={"type": "string", "default": "new"}, n={"type": "integer", "maximum": 5}),
            },
            {
                "name": "v1beta1",
                "served": True,
                "storage": False,
                "deprecated": True,
                "schema": schema(
                    a={"type": "string", "maxLength": 3},
                    x=STRING,
                    y={"type": "string", "default": "old"},
                    n={"type": "integer", "maximum": 10},
                ),
            },
        ],
    },
}


@pytest.fixture(params=["yard", pytest.param("kube_bare", marks=pytest.mark.cluster)], scope="module")
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    admin: Client = request.getfixturevalue(request.param).admin
    assert admin.post(DEFINITIONS, DEFINITION).status == 201
    _wait(lambda: all(admin.get(path(version)).status == 200 for version in ("v1", "v1beta1")))
    yield admin
    admin.delete(f"{DEFINITIONS}/multis.example.com")


def _wait(condition: Any) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the server did not get there in time")


def path(version: str, name: str = "") -> str:
    return f"/apis/example.com/{version}/namespaces/default/multis" + (f"/{name}" if name else "")


def multi(version: str, name: str, **spec: Any) -> Object:
    return {"apiVersion": f"example.com/{version}", "kind": "Multi", "metadata": {"name": name}, "spec": spec}


def test_a_version_returns_the_fields_it_shares_with_the_storage_version(client: Client) -> None:
    created = client.post(path("v1beta1"), multi("v1beta1", "old", a="abc", x="lost", n=7))
    assert (created.status, created.json["spec"]) == (201, {"a": "abc", "n": 7})
    assert client.get(path("v1", "old")).json["spec"] == {"a": "abc", "b": "new", "n": 7}
    old_version = client.get(path("v1beta1", "old")).json
    assert (old_version["apiVersion"], old_version["spec"]) == ("example.com/v1beta1", {"a": "abc", "n": 7})
    listed = client.get(path("v1beta1")).json["items"]
    assert [item["spec"] for item in listed if item["metadata"]["name"] == "old"] == [{"a": "abc", "n": 7}]


def test_each_version_has_its_own_rules(client: Client) -> None:
    assert client.post(path("v1"), multi("v1", "new", a="longer", n=3)).status == 201
    rejected = client.post(path("v1beta1"), multi("v1beta1", "x", a="longer"))
    assert [cause["field"] for cause in rejected.causes] == ["spec.a"]
    # an invalid value from the other version may stay, but not change to another invalid value
    assert client.patch(path("v1beta1", "new"), {"metadata": {"labels": {"a": "b"}}}).status == 200
    assert client.patch(path("v1beta1", "new"), {"spec": {"a": "long too"}}).status == 422
    assert client.patch(path("v1beta1", "new"), {"spec": {"n": 8}}).status == 200
    assert client.patch(path("v1", "new"), {"spec": {"n": 9}}).status == 422


def test_fields_of_another_version_do_not_change_the_generation(client: Client) -> None:
    created = client.post(path("v1beta1"), multi("v1beta1", "same", a="abc", y="mine"))
    assert created.json["metadata"]["generation"] == 1
    labelled = client.patch(path("v1", "same"), {"metadata": {"labels": {"a": "b"}}})
    assert labelled.json["metadata"]["generation"] == 1
    changed = client.patch(path("v1beta1", "same"), {"spec": {"n": 2}})
    assert changed.json["metadata"]["generation"] == 2


def test_a_deprecated_version_returns_a_warning_on_every_request(client: Client) -> None:
    assert client.get(path("v1beta1")).warnings == [DEPRECATED]
    assert client.post(path("v1beta1"), multi("v1beta1", "warned")).warnings == [DEPRECATED]
    assert client.get(path("v1")).warnings == []


def test_objects_are_converted_in_batches_that_an_answer_has_room_for() -> None:
    objects: list[Object] = [{"data": "x" * size} for size in (10, 600_000, 600_000, 2_000_000, 10)]
    assert list(_batches(objects, [0, 1, 2, 3, 4])) == [[0, 1], [2], [3], [4]]
    assert list(_batches(objects, [])) == []
