"""Why queued jobs are pending: reads the queues and explains, on a plane and on a cluster with Kueue."""

from __future__ import annotations

import time
from typing import NamedTuple

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.core.queue.explanation import PendingExplainer, PendingExplanation
from torchyard.core.queue.pod_defaults import NamespaceDefaults
from torchyard.core.queue.visibility import WorkloadPosition, workload_positions
from torchyard.kube.client import Client

_LIMIT_RANGES = GroupVersionResource("", "v1", "limitranges")
_RUNTIME_CLASSES = GroupVersionResource("node.k8s.io", "v1", "runtimeclasses", namespaced=False)


class QueuedWorkloads(NamedTuple):
    positions: list[WorkloadPosition]
    explainer: PendingExplainer

    def explain(self, workload: WorkloadPosition) -> PendingExplanation | None:
        return self.explainer.explain(workload, time.time())


async def read_positions(client: Client) -> dict[str, int]:
    """The positions of pending jobs in their ClusterQueues, by the uid of the job.

    Empty for a user who may not read the workloads of all namespaces, before which a job may have to wait.
    """
    try:
        local_queues, workloads = [
            (await client.list(GroupVersionResource(names.GROUP, names.STORED, kind.plural, kind.namespaced))).items
            for kind in (names.LOCAL_QUEUE, names.WORKLOAD)
        ]
    except StatusError as error:
        if error.status not in (403, 404):
            raise
        return {}
    return {
        str(owner["uid"]): workload.position
        for workload in workload_positions(workloads, _cluster_queue_of(local_queues))
        for owner in workload.info.obj["metadata"].get("ownerReferences") or ()
        if workload.position is not None
    }


async def read_queued_workloads(client: Client) -> QueuedWorkloads:
    flavors, cluster_queues, cohorts, local_queues, workloads = [
        (await client.list(GroupVersionResource(names.GROUP, names.STORED, kind.plural, kind.namespaced))).items
        for kind in (names.FLAVOR, names.CLUSTER_QUEUE, names.COHORT, names.LOCAL_QUEUE, names.WORKLOAD)
    ]
    limit_ranges, runtime_classes = [await _list_if_allowed(client, gvr) for gvr in (_LIMIT_RANGES, _RUNTIME_CLASSES)]
    defaults = NamespaceDefaults(limit_ranges, runtime_classes)
    positions = workload_positions(workloads, _cluster_queue_of(local_queues), defaults)
    explainer = PendingExplainer(
        positions, flavors=flavors, cluster_queues=cluster_queues, cohorts=cohorts, local_queues=local_queues
    )
    return QueuedWorkloads(positions, explainer)


async def _list_if_allowed(client: Client, gvr: GroupVersionResource) -> list[Object]:
    """Empty for a user who may not read them: then the defaults that they set for pods are not known."""
    try:
        return (await client.list(gvr)).items
    except StatusError as error:
        if error.status not in (403, 404):
            raise
        return []


def _cluster_queue_of(local_queues: list[Object]) -> dict[tuple[str, str], str]:
    return {
        (obj["metadata"]["namespace"], obj["metadata"]["name"]): obj["spec"].get("clusterQueue", "")
        for obj in local_queues
    }
