"""Admission fair sharing: LocalQueues that used less in the past come first in their ClusterQueue.

What a LocalQueue consumed is an average of its usage that decays with a half-life. It is sampled at an interval. A
workload that gets quota counts at once with what the first interval will add for it, so that one LocalQueue cannot fill
a ClusterQueue between two samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchyard.api.objects import Object
from torchyard.core.queue.resources import FlavorResourceQuantities, format_quantity, to_milli
from torchyard.core.queue.settings import AdmissionFairSharing
from torchyard.core.queue.specs import parse_weight
from torchyard.core.queue.workload_info import Key, to_timestamp

_MILLI = 1000


@dataclass
class _Consumed:
    weight: float = 1.0
    resources: dict[str, float] = field(default_factory=dict)  # in thousandths
    sampled_at: float | None = None
    is_charged: bool = False  # since it was sampled


class LocalQueueUsage:
    def __init__(self, settings: AdmissionFairSharing) -> None:
        self.settings = settings
        self._consumed: dict[Key, _Consumed] = {}

    def usage(self, local_queue: Key) -> float:
        """What a LocalQueue consumed, by the weights of the resources and its own. The smallest is served first."""
        consumed = self._consumed.get(local_queue)
        if consumed is None:
            return 0.0
        if consumed.weight == 0:  # as in Kueue, it comes last even if it used nothing
            return float("inf")
        weights = self.settings.resource_weights
        total = sum(weights.get(name, 1.0) * amount for name, amount in sorted(consumed.resources.items()))
        return total / _MILLI / consumed.weight

    def put(self, local_queue: Key, obj: Object) -> None:
        """Take the weight of a LocalQueue and, if it is new, what its status says it consumed."""
        consumed = self._consumed.setdefault(local_queue, _Consumed())
        consumed.weight = parse_weight(obj.get("spec") or {})
        status = ((obj.get("status") or {}).get("fairSharing") or {}).get("admissionFairSharingStatus")
        if status and consumed.sampled_at is None:
            amounts = status.get("consumedResources") or {}
            consumed.resources = {name: float(to_milli(amount)) for name, amount in amounts.items()}
            consumed.sampled_at = to_timestamp(status.get("lastUpdate"))

    def remove(self, local_queue: Key) -> None:
        self._consumed.pop(local_queue, None)

    def charge(self, local_queue: Key, usage: FlavorResourceQuantities) -> None:
        """A workload got quota."""
        fraction = self._decay(self.settings.sampling_interval)
        consumed = self._consumed.setdefault(local_queue, _Consumed())
        resources, consumed.is_charged = consumed.resources, True
        for (_, resource), amount in usage.items():
            resources[resource] = resources.get(resource, 0.0) + fraction * amount

    def sample(self, local_queue: Key, admitted: Mapping[str, int], now: float) -> None:
        """`admitted`: what its admitted workloads use now, by resource."""
        consumed = self._consumed.setdefault(local_queue, _Consumed())
        if self.settings.half_life == 0:
            consumed.resources = {}
        elif consumed.sampled_at is not None:  # as in Kueue, usage counts from the first sample on
            fraction = self._decay(now - consumed.sampled_at)
            names = consumed.resources.keys() | admitted.keys()
            consumed.resources = {
                name: (1 - fraction) * consumed.resources.get(name, 0.0) + fraction * admitted.get(name, 0)
                for name in names
            }
        consumed.sampled_at, consumed.is_charged = now, False

    def is_due(self, local_queue: Key, now: float) -> bool:
        consumed = self._consumed.get(local_queue)
        if consumed is None or consumed.sampled_at is None or consumed.is_charged:
            return True
        return now - consumed.sampled_at >= self.settings.sampling_interval

    def consumed_resources(self, local_queue: Key) -> dict[str, str]:
        """For the status."""
        consumed = self._consumed.get(local_queue, _Consumed())
        return {name: format_quantity(name, round(amount)) for name, amount in sorted(consumed.resources.items())}

    def _decay(self, seconds: float) -> float:
        """The part of the average that the usage of the last seconds makes up."""
        half_life = self.settings.half_life
        return 1.0 - 0.5 ** (max(0.0, seconds) / half_life) if half_life else 0.0
