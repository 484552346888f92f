"""Writes through subresources give the same field owners on our server and on a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.apiserver.verbs import kinds
from tests.apiserver.verbs.kinds import DEPLOYMENT, POD
from tests.apiserver.verbs.real import record, same
from tests.support.http import APPLY, JSON_PATCH, MERGE, STRATEGIC, Answer, Client
from tests.support.kubernetes import Server

from torchyard.api.objects import Object
from torchyard.api.resources import Resource

pytestmark = pytest.mark.cluster

CONTAINER: Object = {
    "name": "a",
    "image": "x:1",
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
}
WRITTEN: dict[Resource, Object] = {
    DEPLOYMENT: {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [CONTAINER]}},
    },
    POD: {"containers": [CONTAINER], "automountServiceAccountToken": False},
}

Write = Callable[[Client, str], Answer]


def patching(subresource: str, type: str, body: Any, manager: str, **query: str) -> Write:
    def write(client: Client, path: str) -> Answer:
        return client.patch(f"{path}/{subresource}", body, type, query={"fieldManager": manager, **query})

    return write


def scale(replicas: int | None) -> Object:
    spec = {} if replicas is None else {"replicas": replicas}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "written"}, "spec": spec}


def debugged(name: str) -> Object:
    container = {"name": name, "image": "x:1", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "written"},
        "spec": {"ephemeralContainers": [container]},
    }


def sized(cpu: str) -> Object:
    resources = {"limits": {"cpu": cpu}, "requests": {"cpu": cpu}}
    return {**debugged("x"), "spec": {"containers": [{"name": "a", "resources": resources}]}}


WRITES: dict[str, tuple[Resource, list[Write]]] = {
    "scaling takes the replicas": (
        DEPLOYMENT,
        [
            patching("scale", MERGE, {"spec": {"replicas": 2}}, "first"),
            patching("scale", MERGE, {"spec": {"replicas": 2}}, "second"),
            patching("scale", STRATEGIC, {"spec": {"replicas": 3}}, "second"),
            patching("scale", JSON_PATCH, [{"op": "replace", "path": "/spec/replicas", "value": 4}], "third"),
        ],
    ),
    "a Scale can be applied": (
        DEPLOYMENT,
        [
            patching("scale", APPLY, scale(5), "applier"),
            patching("scale", APPLY, scale(5), "applier", force="true"),
            patching("scale", APPLY, scale(6), "applier"),
            patching("scale", APPLY, {**scale(6), "kind": "Other"}, "applier"),
            patching("scale", APPLY, {**scale(6), "bogus": 1}, "applier"),
            patching("scale", MERGE, {"spec": {"replicas": 7}}, "other"),
        ],
    ),
    "debugging takes the new container": (
        POD,
        [
            patching("ephemeralcontainers", STRATEGIC, {"spec": debugged("d")["spec"]}, "debugger"),
            patching("ephemeralcontainers", MERGE, {"spec": {"ephemeralContainers": []}}, "other"),
        ],
    ),
    "resizing takes the resources": (
        POD,
        [
            patching("resize", STRATEGIC, {"spec": sized("2")["spec"]}, "resizer"),
            patching("resize", APPLY, sized("3"), "applier"),
            patching("resize", APPLY, sized("3"), "applier", force="true"),
        ],
    ),
}


@pytest.mark.parametrize(("resource", "writes"), WRITES.values(), ids=WRITES)
def test_subresources_are_owned_alike(yard: Server, kube_bare: Server, resource: Resource, writes: list[Write]) -> None:
    clients = (yard.admin, kube_bare.admin)
    path = kinds.path(resource, "written")
    whole = {"metadata": {"name": "written"}, "spec": WRITTEN[resource]}
    try:
        for client in clients:
            created = client.post(kinds.path(resource), whole, query={"fieldManager": "creator"})
            assert created.status == 201, created
        for write in writes:
            ours, theirs = (write(client, path) for client in clients)
            assert ours.status == (400 if theirs.status == 500 else theirs.status), (ours, theirs)
            if theirs.status >= 400:
                # Ours speaks of the object's version where the real one speaks of the Scale's.
                assert ours.message.replace(resource.api_version, "autoscaling/v1") == theirs.message.replace(
                    resource.api_version, "autoscaling/v1"
                )
            same(*(record(client.get(path).json) for client in clients))
            same(*(client.get(path).json["spec"].get("replicas") for client in clients))
    finally:
        for client in clients:
            client.delete(path, {"gracePeriodSeconds": 0})
