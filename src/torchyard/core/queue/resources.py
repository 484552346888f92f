"""Amounts as whole thousandths, so that sums are exact and fast, and how they are written for people."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.pod.totals import pod_total
from torchyard.api.quantity import Format, Quantity

FlavorResource = tuple[str, str]
Amounts = dict[FlavorResource, int]

_MILLI = 10**6
_BINARY = ("memory", "ephemeral-storage", "hugepages-")


def milli(text: str | int | float) -> int:
    return quantity.parse(text).milli


@lru_cache(maxsize=4096)  # thousands ask for the same
def shown(resource: str, amount: int) -> str:
    format = Format.BINARY if resource.startswith(_BINARY) else Format.DECIMAL
    return str(Quantity(amount * _MILLI, format))


def add(total: Amounts, more: Mapping[FlavorResource, int]) -> None:
    for key, amount in more.items():
        total[key] = total.get(key, 0) + amount


def pod_requests(spec: Object) -> dict[str, int]:
    """What one pod of a template asks for; where a container names only a limit, that is its request."""
    asked = {
        **spec,
        "containers": [_with_limits(one) for one in spec.get("containers") or ()],
        "initContainers": [_with_limits(one) for one in spec.get("initContainers") or ()],
    }
    return {name: amount.milli for name, amount in sorted(pod_total(asked, "requests").items()) if amount.nano}


def _with_limits(container: Object) -> Object:
    resources = container.get("resources") or {}
    if not resources.get("limits"):
        return container
    return {**container, "resources": {"requests": {**resources["limits"], **(resources.get("requests") or {})}}}
