"""Pods that are alike: decoded and recorded as if each were the first."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from torchyard.api.resources import GroupVersionKind
from torchyard.api.schema.alike import MOST, Blanked
from torchyard.api.schema.builtin import type_of
from torchyard.api.schema.decode import Undecodable, decode

POD = type_of(GroupVersionKind("", "v1", "Pod"))
assert POD is not None


def a_pod(*env: Any, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "env": list(env), "resources": {"limits": {"cpu": "1000m"}}}
    return {"metadata": {"name": "a"}, "spec": {"containers": [container], **spec}}


def decoded(pod: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    assert POD is not None
    return decode(copy.deepcopy(pod), POD)


def variables(pod: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod["spec"]["containers"][0]["env"]
    return found


RANK, SIZE, EMPTY = ({"name": name, "value": value} for name, value in (("RANK", "3"), ("SIZE", "x"), ("E", "")))
SOURCE = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


@pytest.mark.parametrize("env", [[RANK], [SIZE, RANK], [EMPTY, RANK, SOURCE, SIZE], [SOURCE], []])
def test_every_pod_keeps_its_own_values(env: list[dict[str, Any]]) -> None:
    for turn in range(3):
        mine = [{**one, "value": f"{one['value']}{turn}"} if one.get("value") else one for one in env]
        expected = [{key: value for key, value in one.items() if value} for one in mine]
        for variable in expected:
            if "valueFrom" in variable:
                variable["valueFrom"] = {"fieldRef": {"fieldPath": "status.podIP"}}
        pod, unknown = decoded(a_pod(*mine))
        assert variables(pod) == expected if env else "env" not in pod["spec"]["containers"][0]
        assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
        assert unknown == []


def test_two_of_them_share_nothing_that_one_could_change() -> None:
    first, second = decoded(a_pod(RANK))[0], decoded(a_pod(RANK))[0]
    variables(first)[0]["value"] = "changed"
    first["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "changed"
    assert second == decoded(a_pod(RANK))[0]
    assert variables(second)[0]["value"] == "3"


def test_an_unknown_field_is_told_of_every_time() -> None:
    for _ in range(3):
        assert decoded(a_pod(RANK, replicas=3))[1] == ['unknown field "spec.replicas"']


@pytest.mark.parametrize(
    "env", [[{"name": "RANK", "value": 3}], [{"name": "RANK", "value": {"a": 1}}], ["RANK"], [None, 7]]
)
def test_what_does_not_fit_is_refused_every_time(env: list[Any]) -> None:
    for _ in range(2):
        with pytest.raises(Undecodable, match="cannot unmarshal"):
            decoded(a_pod(*env))


@pytest.mark.parametrize("spec", [None, [], "x", {"containers": {}}, {"containers": [None, {"env": 3}]}])
def test_specs_of_any_shape_have_bytes(spec: Any) -> None:
    assert Blanked(spec).key is not None


def test_more_kinds_of_pods_than_are_remembered_are_decoded_all_the_same() -> None:
    for number in [*range(MOST + 10), *range(10)]:
        pod, _ = decoded(a_pod(RANK, nodeName=f"n{number}"))
        assert (pod["spec"]["nodeName"], variables(pod)) == (f"n{number}", [RANK])
