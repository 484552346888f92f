"""The usage of a pod as samples of its job."""

from __future__ import annotations

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.usage_names import GPU_MEMORY, GPUS
from torchyard.core.samples.owners import run_uid, sampled_replica
from torchyard.core.samples.table import SampleTable

_GPU_CURVES = (("gpu", GPUS, "gpus"), ("gpu_memory", GPU_MEMORY, "bytes"))


def record_usage(table: SampleTable, metrics: Object, time: float, *, uid: str = "") -> None:
    """Record PodMetrics of metrics.k8s.io, which have the labels of their pod.

    `uid` is that of the job, if it is known from elsewhere than these labels.
    """
    metadata = metrics["metadata"]
    labels = metadata.get("labels") or {}
    job, replica = sampled_replica(metadata["namespace"], metadata["name"], labels)
    if not table.accept_run(job, uid or run_uid(labels)):
        return
    usages = [container.get("usage") or {} for container in metrics.get("containers") or ()]
    cpu = sum(quantity.parse(usage.get("cpu", 0)).nano / 1e9 for usage in usages)
    memory = sum(quantity.parse(usage.get("memory", 0)).value for usage in usages)
    table.record(job, replica, "cpu", time, cpu, unit="cores")
    table.record(job, replica, "memory", time, memory, unit="bytes")
    for name, resource, unit in _GPU_CURVES:
        known = [quantity.parse(usage[resource]).nano / 1e9 for usage in usages if resource in usage]
        if known:  # the driver may not say; that is not zero
            table.record(job, replica, name, time, sum(known), unit=unit)
