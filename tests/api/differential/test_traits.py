"""Traits of every kind against kube-apiserver: generations, unconditional updates, responses to DELETE."""

from __future__ import annotations

import copy

import pytest
from tests.api.differential.real import Judge, path_of
from tests.api.differential.recorded import CASES
from tests.api.differential.verdict import resource_of
from tests.support.kubernetes import Server

from torchyard.api.objects import Object

# names with a meaning
_NAMED = ("apiservices", "ipaddresses", "namespaces")


def _samples() -> dict[str, Object]:
    """Return the first valid object of each kind."""
    samples: dict[str, Object] = {}
    for name, case in CASES.items():
        if ": good: " in name:
            resource = resource_of(case.obj)
            samples.setdefault(f"{resource.plural}.{resource.group}".rstrip("."), case.obj)
    return samples


SAMPLES = _samples()


@pytest.fixture(scope="module")
def judge(kube_bare: Server) -> Judge:
    return Judge(kube_bare.admin)


@pytest.mark.cluster
@pytest.mark.parametrize("name", SAMPLES)
def test_traits_of_a_kind_match_kube_apiserver(judge: Judge, name: str) -> None:
    obj = copy.deepcopy(SAMPLES[name])
    resource = resource_of(obj)
    strategy = resource.strategy
    if resource.plural not in _NAMED:
        obj["metadata"]["name"] = "traits"
    collection = path_of(resource)
    created = judge.client.post(collection, obj)
    assert created.status == 201, created.message
    path = f"{collection}/{created.json['metadata']['name']}"
    try:
        assert ("generation" in created.json["metadata"]) is (strategy.generation_fields is not None)
        unpinned = copy.deepcopy(created.json)
        del unpinned["metadata"]["resourceVersion"]
        unpinned["metadata"]["labels"] = {**(unpinned["metadata"].get("labels") or {}), "changed": "yes"}
        assert (judge.client.put(path, unpinned).status == 200) is strategy.unconditional_update
        if resource.plural not in _NAMED:
            absent = {**copy.deepcopy(obj), "metadata": {"name": "absent"}}
            answer = judge.client.put(f"{collection}/absent", absent)
            assert (answer.status == 201) is strategy.create_on_update
            if answer.status == 201:
                judge.remove(f"{collection}/absent")
        judge.client.patch(path, {"metadata": {"finalizers": None}})
        deleted = judge.client.delete(path)
        orphans = "orphan" in ((deleted.json.get("metadata") or {}).get("finalizers") or ())
        assert orphans is (strategy.default_propagation == "Orphan")
        if not orphans:
            assert (deleted.json["kind"] != "Status") is strategy.returns_deleted
    finally:
        judge.remove(path)
