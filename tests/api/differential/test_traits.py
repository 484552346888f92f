"""What a kind does beside being valid: generations, unconditional updates, answers to DELETE, by a real server."""

from __future__ import annotations

import copy

import pytest
from tests.api.differential.real import Judge, path_of
from tests.api.differential.recorded import CASES
from tests.api.differential.verdict import resource_of
from tests.support.kubernetes import Server

from torchyard.api.objects import Object

# names that mean something
_NAMED = ("apiservices", "ipaddresses", "namespaces")


def _samples() -> dict[str, Object]:
    """The first good object of each kind."""
    found: dict[str, Object] = {}
    for name, case in CASES.items():
        if ": good: " in name:
            resource = resource_of(case.obj)
            found.setdefault(f"{resource.plural}.{resource.group}".rstrip("."), case.obj)
    return found


SAMPLES = _samples()


@pytest.fixture(scope="module")
def judge(kube_bare: Server) -> Judge:
    return Judge(kube_bare.admin)


@pytest.mark.cluster
@pytest.mark.parametrize("name", SAMPLES)
def test_a_kind_behaves_as_on_a_real_server(judge: Judge, name: str) -> None:
    obj = copy.deepcopy(SAMPLES[name])
    resource = resource_of(obj)
    strategy = resource.strategy
    if resource.plural not in _NAMED:
        obj["metadata"]["name"] = "traits"
    collection = path_of(resource)
    made = judge.client.post(collection, obj)
    assert made.status == 201, made.message
    path = f"{collection}/{made.json['metadata']['name']}"
    try:
        assert ("generation" in made.json["metadata"]) is (strategy.generation_fields is not None)
        unpinned = copy.deepcopy(made.json)
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
