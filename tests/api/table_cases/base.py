"""Helpers of the table cases."""

from __future__ import annotations

from torchyard.api.objects import Object

LONG_AGO = "2024-03-01T10:00:00Z"
LATER = "2024-03-01T12:30:00Z"
TEMPLATE: Object = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "a", "image": "i1"}, {"name": "b", "image": "i2"}]},
}
SELECTOR = {"matchLabels": {"app": "x"}}

EXPRESSIONS = {
    "matchLabels": {"app": "x"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}, {"key": "z", "operator": "Exists"}],
}


def condition(kind: str, value: str = "True", reason: str = "") -> Object:
    return {"type": kind, "status": value, **({"reason": reason} if reason else {})}
