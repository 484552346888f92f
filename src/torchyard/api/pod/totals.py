"""The total resources of a pod, as used for quotas, limit ranges and placement."""

from __future__ import annotations

from typing import Literal

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.quantity import Quantity

Amounts = dict[str, Quantity]
Which = Literal["requests", "limits"]


def pod_total(spec: Object, which: Which) -> Amounts:
    """Return the sum over the containers or the peak of the init containers, whichever is larger, plus overhead.

    Init containers run one after the other, alongside the sidecars that started before them.
    """
    total: Amounts = {}
    for container in spec.get("containers") or ():
        add(total, _own_resources(container, which))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        amounts = _own_resources(container, which)
        if container.get("restartPolicy") == "Always":
            add(total, amounts)
            add(sidecars, amounts)
            _raise(peak, sidecars)
        else:
            add(amounts, sidecars)
            _raise(peak, amounts)
    _raise(total, peak)
    total.update(_own_resources(spec, which))  # pod-level resources replace the sum
    overhead = {name: quantity.parse(text) for name, text in (spec.get("overhead") or {}).items()}
    # A pod without a limit has no overhead limit either.
    add(total, overhead if which == "requests" else {name: overhead[name] for name in overhead if name in total})
    return total


def _own_resources(holder: Object, which: Which) -> Amounts:
    amounts = (holder.get("resources") or {}).get(which) or {}
    return {name: quantity.parse(text) for name, text in amounts.items()}


def add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        if name not in total or total[name] < amount:
            total[name] = amount
