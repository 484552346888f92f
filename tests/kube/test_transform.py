"""Transforms of objects before they enter a cache."""

from __future__ import annotations

import orjson

from torchyard.kube.transform import intern_strings, strip_managed_fields

METADATA = {
    "name": "a",
    "namespace": "team-of-mine",
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"app": "trainer"},
}
POD = {
    "apiVersion": "example.com/v1",
    "metadata": {**METADATA, "managedFields": [{"manager": "kubectl"}]},
    "spec": {
        "containers": [{"image": "pytorch/pytorch:2.0", "args": ["--backend", "gloo"], "tty": True}],
        "priority": 0,
    },
    "status": {"phase": "Pending", "conditions": []},
}


def test_only_managed_fields_are_dropped() -> None:
    assert strip_managed_fields(orjson.loads(orjson.dumps(POD))) == {**POD, "metadata": METADATA}


def test_equal_strings_are_shared_but_mutable_values_are_not() -> None:
    left, right = (intern_strings(orjson.loads(orjson.dumps(POD))) for _ in range(2))
    first, second = left["spec"]["containers"][0], right["spec"]["containers"][0]
    assert first["image"] is second["image"]
    assert left["metadata"]["labels"]["app"] is right["metadata"]["labels"]["app"]
    assert left["apiVersion"] is right["apiVersion"]
    for name in ("namespace", "creationTimestamp"):
        assert left["metadata"][name] is right["metadata"][name]
    assert first["args"][0] is second["args"][0]
    assert left["status"]["phase"] is right["status"]["phase"]
    assert first is not second
    assert first["args"] is not second["args"]
