"""Objects on their way into a live copy."""

from __future__ import annotations

import orjson

from torchyard.kube.transform import strip_and_intern

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


def test_all_but_managed_fields_stays() -> None:
    assert strip_and_intern(orjson.loads(orjson.dumps(POD))) == {**POD, "metadata": METADATA}


def test_two_objects_share_their_texts_and_nothing_that_can_be_changed() -> None:
    one, two = (strip_and_intern(orjson.loads(orjson.dumps(POD))) for _ in range(2))
    first, second = one["spec"]["containers"][0], two["spec"]["containers"][0]
    assert first["image"] is second["image"]
    assert one["metadata"]["labels"]["app"] is two["metadata"]["labels"]["app"]
    assert one["apiVersion"] is two["apiVersion"]
    for name in ("namespace", "creationTimestamp"):
        assert one["metadata"][name] is two["metadata"][name]
    assert first["args"][0] is second["args"][0]
    assert one["status"]["phase"] is two["status"]["phase"]
    assert first is not second
    assert first["args"] is not second["args"]
