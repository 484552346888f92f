"""What a user can do about a pending workload. It is added to Kueue's message in events, not in conditions."""

from __future__ import annotations

from torchyard.api.queue import advice_messages, messages
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.eligibility import ineligible_advice
from torchyard.core.queue.state import QueueState
from torchyard.core.queue.workload_info import WorkloadInfo

_GPU, _GPU_PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
_INELIGIBLE = (messages.REASON_MISCONFIGURED, messages.REASON_SUSPENDED, messages.REASON_NAMESPACE_MISMATCH)


def with_advice(state: QueueState, info: WorkloadInfo, why: ReasonMessage) -> str:
    """The message of a pending reason with what helps."""
    return why.message + _advice(state, info, why.reason)


def _advice(state: QueueState, info: WorkloadInfo, cause: str) -> str:
    if cause in _INELIGIBLE:
        return ineligible_advice(info, state.cache.local_queues, state.cache.cluster_queues)
    cq = state.cache.cluster_queue_of(info)
    if cq is None:
        return ""
    if cause == messages.REASON_EXCEEDS_MAX_QUOTA:
        return advice_messages.never_fits(cq.name)
    if cause == messages.REASON_QUOTA_HELD:
        heads = state.cache.blocked_heads([cq.node.root])
        owners = [head.cq.name for head in heads if head.cq is not cq]
        return advice_messages.quota_held_for(owners) if owners else ""
    return ""


def machine_hint(state: QueueState, info: WorkloadInfo) -> str:
    """In the plane's own queue, the GPUs of this machine for a workload that requests some: part of the condition."""
    cq = state.cache.cluster_queue_of(info)
    requests_gpu = any(_GPU in pod_set.requests for pod_set in info.requirements.pod_sets)
    if cq is None or not cq.spec.is_local or not requests_gpu:
        return ""
    flavors = (state.objects.flavors.get(name) for name in cq.spec.flavors)
    return advice_messages.gpu_products(
        {flavor.node_labels[_GPU_PRODUCT] for flavor in flavors if flavor and _GPU_PRODUCT in flavor.node_labels}
    )
