"""When a taint evicts a pod, and which pods no node or controller will remove."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended
from torchyard.api.times import parse_rfc3339, shift

# How many terminated pods remain: kube-controller-manager's --terminated-pod-gc-threshold.
TERMINATED_POD_THRESHOLD = 12_500
# Pods that only the garbage collector removes: no kubelet ends a pod without a node, and ended ones accumulate.
TERMINATED, TERMINATING_UNSCHEDULED = "terminated", "terminating-unscheduled"


def eviction_time(pod: Object, taints: Iterable[Object], now: datetime) -> datetime | None:
    """When the first toleration expires; `now` without a toleration, None if every taint is tolerated forever."""
    moments = []
    for taint in taints:
        if taint["effect"] != "NoExecute":
            continue
        tolerations = [
            toleration for toleration in pod["spec"].get("tolerations") or () if _tolerates(toleration, taint)
        ]
        if not tolerations:
            return now
        limits = [
            toleration["tolerationSeconds"]
            for toleration in tolerations
            if toleration.get("tolerationSeconds") is not None
        ]
        if limits:
            since = parse_rfc3339(taint["timeAdded"]) if taint.get("timeAdded") else now
            moments.append(shift(since, max(0, min(limits))))
    return min(moments, default=None)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def garbage_kinds(pod: Object) -> list[str]:
    """Why no node or controller may remove a pod: a key to look such pods up by."""
    kinds = [TERMINATED] if has_ended(pod) else []
    if pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName"):
        kinds.append(TERMINATING_UNSCHEDULED)
    return kinds


def terminated_beyond(pods: Iterable[Object], threshold: int = TERMINATED_POD_THRESHOLD) -> list[Object]:
    """The oldest terminated pods beyond the threshold."""
    terminated = [pod for pod in pods if TERMINATED in garbage_kinds(pod)]
    return sorted(terminated, key=_age)[: max(0, len(terminated) - threshold)]


def _age(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]
