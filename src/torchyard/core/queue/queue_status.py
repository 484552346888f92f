"""The statuses of ClusterQueues and LocalQueues, computed from the cache."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.objects import Object
from torchyard.api.queue import names, queue_messages
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.dominant_resource_share import dominant_resource_share
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.resources import FlavorResourceQuantities, add_quantities, format_quantity
from torchyard.core.queue.state import QueueState
from torchyard.core.queue.workload_info import Key, WorkloadInfo


def cluster_queue_status(cq: ClusterQueue, now: str, *, is_fair: bool = False) -> Object:
    """`is_fair`: whether cohorts share by weight."""
    reserving = list(cq.reserving.values())
    is_active = cq.inactive is None
    condition = _active_condition(
        is_active, cq.inactive or ReasonMessage(queue_messages.REASON_READY, queue_messages.CAN_ADMIT), now
    )
    return {
        "conditions": [condition],
        **_counts(reserving, len(cq.pending)),
        "flavorsReservation": _flavors_usage(cq, _total_usage(reserving), with_borrowed=True),
        "flavorsUsage": _flavors_usage(
            cq, _total_usage(info for info in reserving if info.is_admitted), with_borrowed=True
        ),
        **(fair_sharing_status(cq.node) if is_fair else {}),
    }


def fair_sharing_status(node: QuotaNode) -> Object:
    return {"fairSharing": {"weightedShare": dominant_resource_share(node).rounded}}


def local_queue_status(key: Key, state: QueueState, now: str) -> Object:
    spec = state.cache.local_queues[key]
    cq = state.cache.cluster_queues.get(spec.get("clusterQueue", ""))
    workloads = state.cache.by_local_queue.reserving(key) if cq is not None else ()
    reserving = [info for info in workloads if cq is not None and info.key in cq.reserving]
    condition = _local_queue_condition(spec, cq, now)
    status: Object = {"conditions": [condition], **_counts(reserving, state.pending.counts[key])}
    if cq is not None:
        admitted = (info for info in reserving if info.is_admitted)
        status["flavorsReservation"] = _flavors_usage(cq, _total_usage(reserving), with_borrowed=False)
        status["flavorsUsage"] = _flavors_usage(cq, _total_usage(admitted), with_borrowed=False)
    return status


def _local_queue_condition(spec: Object, cq: ClusterQueue | None, now: str) -> Object:
    if spec.get("stopPolicy", names.NO_STOP) != names.NO_STOP:
        why = ReasonMessage(queue_messages.REASON_STOPPED, queue_messages.LOCAL_STOPPED)
    elif cq is None:
        why = ReasonMessage(queue_messages.REASON_CLUSTER_QUEUE_DOES_NOT_EXIST, queue_messages.CANNOT_SUBMIT)
    elif cq.inactive is not None:
        why = ReasonMessage(queue_messages.REASON_CLUSTER_QUEUE_IS_INACTIVE, queue_messages.CANNOT_SUBMIT)
    else:
        return _active_condition(True, ReasonMessage(queue_messages.REASON_READY, queue_messages.CAN_SUBMIT), now)
    return _active_condition(False, why, now)


def _active_condition(is_active: bool, why: ReasonMessage, now: str) -> Object:
    return {
        "type": queue_messages.ACTIVE,
        "status": "True" if is_active else "False",
        "reason": why.reason,
        "message": why.message,
        "lastTransitionTime": now,
    }


def _counts(reserving: list[WorkloadInfo], pending: int) -> Object:
    return {
        "pendingWorkloads": pending,
        "reservingWorkloads": len(reserving),
        "admittedWorkloads": sum(info.is_admitted for info in reserving),
    }


def _total_usage(infos: Iterable[WorkloadInfo]) -> FlavorResourceQuantities:
    total: FlavorResourceQuantities = {}
    for info in infos:
        add_quantities(total, info.usage)
    return total


def _flavors_usage(cq: ClusterQueue, usage: FlavorResourceQuantities, *, with_borrowed: bool) -> list[Object]:
    flavors: list[Object] = []
    for group in cq.spec.groups:
        for flavor in group.flavors:
            resources: list[Object] = []
            for resource in sorted(group.resources):
                total = usage.get((flavor, resource), 0)
                entry = {"name": resource, "total": format_quantity(resource, total)}
                if with_borrowed:
                    borrowed = max(0, total - cq.node.nominal((flavor, resource))) if cq.node.parent else 0
                    entry["borrowed"] = format_quantity(resource, borrowed)
                resources.append(entry)
            flavors.append({"name": flavor, "resources": resources})
    return flavors
