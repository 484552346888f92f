"""A patch of a pod's status that shares the rest of the pod has the result of the general way."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from torchyard.api.gvr import PODS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.api.pod.strategy import PodStrategy
from torchyard.apiserver.verbs import patch as patch_verb
from torchyard.kube.client import ApiResponse
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
TIME = "2026-01-01T00:00:00Z"
VALUES: tuple[Any, ...] = (
    {"conditions": [{"type": "Ready", "status": "True"}]},
    {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room", "lastProbeTime": None}]},
    {"conditions": [{"type": "not valid!", "status": "True"}]},
    {"conditions": [{"type": 7}]},
    {"conditions": None},
    {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    {"phase": None},
    {"podIPs": [{"ip": "x"}]},
    {"qosClass": "Guaranteed"},
    {"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 1}]},
    {"unknown": 1},
    {},
    None,
    "text",
)
METADATA: tuple[Any, ...] = (
    None,
    {},
    {"labels": {"a": "b"}},
    {"labels": {"a": None}},
    {"annotations": {"x": "y"}},
    {"labels": {"a": "not valid!"}},
    {"finalizers": ["example.com/a"]},
    {"uid": "other"},
    {"resourceVersion": "1"},
    {"name": "another"},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]},
    "text",
)
OTHERS: tuple[Object, ...] = (
    {},
    {"kind": "Pod", "apiVersion": "v1"},
    {"kind": "Job"},
    {"kind": 1},
    {"spec": {"nodeName": "n"}},
    {"extra": 1},
)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)) as plane:
        await plane.client("test").create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")
        yield plane


def _pod(name: str) -> Object:
    container = {"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "1"}}}
    spec = {"containers": [container], "automountServiceAccountToken": False}  # no volume with a random name
    return {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}


def _draw(rng: random.Random) -> tuple[str, Object, str]:
    patch: Object = {**rng.choice(OTHERS)} if rng.random() < 0.3 else {}
    if rng.random() < 0.9:
        patch["status"] = rng.choice(VALUES)
    if rng.random() < 0.4:
        patch["metadata"] = rng.choice(METADATA)
    return rng.choice((MERGE, STRATEGIC)), patch, rng.choice(("Strict", "Warn", "Ignore"))


async def _patch(plane: Plane, name: str, drawn: tuple[str, Object, str]) -> ApiResponse:
    content_type, patch, validation = drawn
    path = f"{PODS.path('default', name, 'status')}?fieldManager=m&fieldValidation={validation}"
    transport = plane.client("test")._transport
    return await transport.request("PATCH", path, body=orjson.dumps(patch), content_type=content_type)


def _comparable(body: bytes, name: str, uid: str) -> Any:
    """Without what differs between two pods of different names that were made at different times."""
    text = body.decode().replace(uid, "uid").replace(name, "name")
    response = orjson.loads(text)
    response.get("metadata", {}).pop("resourceVersion", None)
    return response


async def test_the_result_is_that_of_the_general_way(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = plane.registry.clock()
    plane.registry.clock = lambda: moment
    client, rng = plane.client("test"), random.Random(1)
    uids = {
        name: (await client.create(PODS, _pod(name), "default"))["metadata"]["uid"] for name in ("shared", "general")
    }
    statuses = set()
    for _ in range(400):
        drawn = _draw(rng)
        shared = await _patch(plane, "shared", drawn)
        with monkeypatch.context() as patched:
            patched.setattr(PodStrategy, "status_is_separate", False)
            general = await _patch(plane, "general", drawn)
        statuses.add(shared.status)
        assert shared.status == general.status, drawn
        if b'"uid":"other"' in orjson.dumps(drawn[1]) or (b"resourceVersion" in shared.body and shared.status >= 400):
            continue  # the message has a uid or a revision
        assert _comparable(shared.body, "shared", uids["shared"]) == _comparable(
            general.body, "general", uids["general"]
        ), drawn
        stored = [
            _comparable(orjson.dumps(await client.get(PODS, name, "default")), name, uid) for name, uid in uids.items()
        ]
        assert stored[0] == stored[1], drawn
    assert {200, 400, 409, 422} <= statuses


async def test_only_a_patch_of_nothing_else_shares_the_rest(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    original = patch_verb._patched_built_in_status

    def count(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return original(*arguments)

    monkeypatch.setattr(patch_verb, "_patched_built_in_status", count)
    await plane.client("test").create(PODS, _pod("a"), "default")
    for patch, expected in (({"status": {"phase": "Running"}}, 1), ({"status": {}, "spec": {}}, 1), ({}, 2)):
        await _patch(plane, "a", (MERGE, patch, "Ignore"))
        assert calls == expected
