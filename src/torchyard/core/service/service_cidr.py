"""ServiceCIDRs: ready while they exist, and kept while a Service has an address that no other range contains."""

from __future__ import annotations

import copy
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339, to_rfc3339

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
READY_MESSAGE = "Kubernetes Service CIDR is ready"
IN_USE_MESSAGE = (
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
)
# As upstream: allocators may not know yet that the range is going, so addresses are looked for once more.
_GRACE = timedelta(seconds=10)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class CIDRDecision:
    """What to write, and when to look again."""

    metadata: Object | None = None  # the object with its finalizer set or removed
    status: Object | None = None  # the object with another status
    requeue_after: float | None = None


def decide(cidr: Object, others: Iterable[Object], addresses: Iterable[str], now: datetime) -> CIDRDecision:
    """What happens to a ServiceCIDR, given the other ranges and the names of all IPAddresses."""
    metadata = cidr["metadata"]
    finalizers = metadata.get("finalizers") or []
    if not metadata.get("deletionTimestamp"):
        if FINALIZER not in finalizers:
            return CIDRDecision(metadata=_with_finalizers(cidr, [*finalizers, FINALIZER]))
        return CIDRDecision(status=_with_ready(cidr, "True", "", READY_MESSAGE, now))
    if FINALIZER not in finalizers:
        return CIDRDecision()
    if _is_in_use(cidr, others, addresses):
        return CIDRDecision(status=_with_ready(cidr, "False", "Terminating", IN_USE_MESSAGE, now))
    remaining = parse_rfc3339(metadata["deletionTimestamp"]) + _GRACE - now
    if remaining > timedelta():
        return CIDRDecision(requeue_after=remaining.total_seconds())
    return CIDRDecision(metadata=_with_finalizers(cidr, [name for name in finalizers if name != FINALIZER]))


def networks_of(cidr: Object) -> list[Network]:
    return [ipaddress.ip_network(text) for text in (cidr.get("spec") or {}).get("cidrs") or ()]


def is_usable(cidr: Object) -> bool:
    """Whether addresses are allocated from the range."""
    conditions = (cidr.get("status") or {}).get("conditions") or ()
    is_ready = any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
    return is_ready and not cidr["metadata"].get("deletionTimestamp")


def _is_in_use(cidr: Object, others: Iterable[Object], addresses: Iterable[str]) -> bool:
    own = networks_of(cidr)
    remaining = [
        network for other in others if not other["metadata"].get("deletionTimestamp") for network in networks_of(other)
    ]
    return any(
        any(address in network for network in own) and not any(address in network for network in remaining)
        for address in map(ipaddress.ip_address, addresses)
    )


def _with_finalizers(cidr: Object, finalizers: list[str]) -> Object:
    return {**cidr, "metadata": {**cidr["metadata"], "finalizers": finalizers}}


def _with_ready(cidr: Object, status: str, reason: str, message: str, now: datetime) -> Object | None:
    """The object with this condition; None if it has it already."""
    changed = copy.deepcopy(cidr)
    conditions = changed.setdefault("status", {}).setdefault("conditions", [])
    current = next((condition for condition in conditions if condition.get("type") == "Ready"), None)
    if current is not None and (current.get("status"), current.get("message")) == (status, message):
        return None
    ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
    ready["lastTransitionTime"] = to_rfc3339(now)
    changed["status"]["conditions"] = [*(other for other in conditions if other is not current), ready]
    return changed
