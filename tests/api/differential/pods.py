"""Base pods of the cases: a plain one, and pods with a volume or variables."""

from __future__ import annotations

import copy
from typing import Any

from torchyard.api.objects import Object

CONTAINER: Object = {"name": "main", "image": "img:1"}


def pod(spec: Object | None = None, /, *, container: Object | None = None, **meta: Any) -> Object:
    containers = [{**CONTAINER, **(container or {})}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **meta},
        "spec": copy.deepcopy({"containers": containers, **(spec or {})}),
    }


def with_volume(volume: Object, **mount: Any) -> Object:
    mounts = [{"name": "v", "mountPath": "/v", **mount}] if mount else []
    return pod({"volumes": [{"name": "v", **volume}]}, container={"volumeMounts": mounts})


def env(*variables: Object) -> Object:
    return pod(container={"env": list(variables)})


def from_(name: str = "A", **source: Any) -> Object:
    return {"name": name, "valueFrom": source}
