"""Indexes by which pods without a controller and the selectors that match them find each other.

A selector is filed under one label that it requires, and an orphan under each of its labels.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.api.objects import Object
from torchyard.kube.informer import by_owner


def selector_key(namespace: str, required: Mapping[str, str]) -> str:
    """One required label as `namespace/name=value`; without one, the namespace."""
    name = min(required, default="")
    return f"{namespace}/{name}={required[name]}" if name else f"{namespace}/"


def orphan_keys(obj: Object) -> list[str]:
    """The labels of an object without a controller, as `selector_key` writes them."""
    if by_owner(obj):
        return []
    namespace = obj["metadata"]["namespace"]
    pairs = (obj["metadata"].get("labels") or {}).items()
    return [f"{namespace}/", *(f"{namespace}/{name}={value}" for name, value in pairs)]


def workload_selector_keys(workload: Object) -> list[str]:
    """The key of a workload's selector, which is a map or a label selector."""
    selector = workload["spec"].get("selector") or {}
    is_object = "matchLabels" in selector or "matchExpressions" in selector
    required = (selector.get("matchLabels") or {}) if is_object else selector
    return [selector_key(workload["metadata"]["namespace"], required)]
