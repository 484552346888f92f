"""Why queued jobs are pending: reads the queues and explains, on a plane and on a cluster with Kueue."""

from __future__ import annotations

import time
from typing import NamedTuple

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.queue import names
from torchyard.core.queue.explanation import PendingExplainer, PendingExplanation
from torchyard.core.queue.visibility import WorkloadPosition, workload_positions
from torchyard.kube.client import Client


class QueuedWorkloads(NamedTuple):
    positions: list[WorkloadPosition]
    explainer: PendingExplainer

    def explain(self, workload: WorkloadPosition) -> PendingExplanation | None:
        return self.explainer.explain(workload, time.time())


async def read_queued_workloads(client: Client) -> QueuedWorkloads:
    flavors, cluster_queues, cohorts, local_queues, workloads = [
        (await client.list(GroupVersionResource(names.GROUP, names.STORED, kind.plural, kind.namespaced))).items
        for kind in (names.FLAVOR, names.CLUSTER_QUEUE, names.COHORT, names.LOCAL_QUEUE, names.WORKLOAD)
    ]
    cluster_queue_of = {
        (obj["metadata"]["namespace"], obj["metadata"]["name"]): obj["spec"].get("clusterQueue", "")
        for obj in local_queues
    }
    positions = workload_positions(workloads, cluster_queue_of)
    explainer = PendingExplainer(
        positions, flavors=flavors, cluster_queues=cluster_queues, cohorts=cohorts, local_queues=local_queues
    )
    return QueuedWorkloads(positions, explainer)
