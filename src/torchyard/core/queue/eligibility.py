"""Whether a workload may be queued at all; if not, the reason with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchyard.api import selectors
from torchyard.api.objects import Object
from torchyard.api.queue import advice_messages, messages, names
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.specs import ClusterQueueSpec
from torchyard.core.queue.workload_info import Key, WorkloadInfo

NamespaceLabels = Callable[[str], Mapping[str, str] | None]  # None: the namespace does not exist


def ineligible_reason(
    info: WorkloadInfo,
    local_queues: Mapping[Key, Object],
    cluster_queues: Mapping[str, ClusterQueue],
    labels_of: NamespaceLabels | None,
) -> ReasonMessage | None:
    """None: it can be queued and admitted. `local_queues`: their specs.

    `labels_of`: None if the labels are not known; then every ClusterQueue selects all namespaces.
    """
    reason = local_queue_reason(info, local_queues)
    if reason is not None:
        return reason
    name = local_queues[info.local_queue].get("clusterQueue", "")
    return _cluster_queue_reason(info.key[0], name, cluster_queues, labels_of)


def local_queue_reason(info: WorkloadInfo, local_queues: Mapping[Key, Object]) -> ReasonMessage | None:
    """None: its LocalQueue accepts it, whatever the ClusterQueue says."""
    if not info.is_active:
        return ReasonMessage(messages.REASON_ON_HOLD, "")  # its condition Evicted says so
    if info.requeue_at is not None:
        return ReasonMessage(messages.REASON_WAITING_FOR_PODS_READY, "")
    if info.admission_gates:
        return ReasonMessage(messages.REASON_ADMISSION_GATED, messages.gated_by(info.admission_gates))
    kind, spec = names.LOCAL_QUEUE.kind, local_queues.get(info.local_queue)
    if spec is None:
        return ReasonMessage(messages.REASON_MISCONFIGURED, messages.does_not_exist(kind, info.queue_name))
    if spec.get("stopPolicy", names.NO_STOP) != names.NO_STOP:
        return ReasonMessage(messages.REASON_SUSPENDED, messages.is_inactive(kind, info.queue_name))
    return None


def _cluster_queue_reason(
    namespace: str, name: str, cluster_queues: Mapping[str, ClusterQueue], labels_of: NamespaceLabels | None
) -> ReasonMessage | None:
    kind, cq = names.CLUSTER_QUEUE.kind, cluster_queues.get(name)
    if cq is None:
        return ReasonMessage(messages.REASON_MISCONFIGURED, messages.does_not_exist(kind, name))
    if cq.inactive is not None:
        is_stopped = cq.spec.stop_policy != names.NO_STOP
        reason = messages.REASON_SUSPENDED if is_stopped else messages.REASON_MISCONFIGURED
        return ReasonMessage(reason, messages.is_inactive(kind, name))
    if labels_of is not None and not _selects(cq.spec, labels_of(namespace)):
        return ReasonMessage(messages.REASON_NAMESPACE_MISMATCH, messages.NAMESPACE_MISMATCH)
    return None


def ineligible_advice(
    info: WorkloadInfo, local_queues: Mapping[Key, Object], cluster_queues: Mapping[str, ClusterQueue]
) -> str:
    """What a user can do about a workload that is not eligible, to be added to the message."""
    spec = local_queues.get(info.local_queue)
    if spec is None:
        return advice_messages.available_queues(name for namespace, name in local_queues if namespace == info.key[0])
    if spec.get("stopPolicy", names.NO_STOP) != names.NO_STOP:
        return advice_messages.LOCAL_QUEUE_STOPPED_ADVICE
    name = spec.get("clusterQueue", "")
    cq = cluster_queues.get(name)
    if cq is None:
        return advice_messages.CREATE_CLUSTER_QUEUE_HINT
    return (
        advice_messages.namespace_advice(name) if cq.inactive is None else advice_messages.inactive_advice(cq.inactive)
    )


def _selects(spec: ClusterQueueSpec, labels: Mapping[str, str] | None) -> bool:
    if spec.namespace_selector is None or labels is None:
        return False
    return selectors.from_object(spec.namespace_selector).matches(labels)
