"""Fair sharing on a plane: the statuses of ClusterQueues, Cohorts and LocalQueues, and the metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.controllers.queue.conftest import Cluster
from tests.support import queues

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.queue import names
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

CONFIGURATION = """apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 1m}
"""


async def test_statuses_show_the_shares_and_what_local_queues_consumed(tmp_path: Path) -> None:
    file = tmp_path / "kueue.yaml"
    file.write_text(CONFIGURATION)
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, queue_config=file)) as plane:
        cluster = Cluster(plane.client("test"))

        async def share(gvr: GroupVersionResource, name: str, namespace: str = "") -> Any:
            obj = await cluster.client.get(gvr, name, namespace)
            return (obj.get("status") or {}).get("fairSharing")

        def has_share(gvr: GroupVersionResource, name: str, expected: int) -> Any:
            async def is_shown() -> bool:
                return bool(await share(gvr, name) == {"weightedShare": expected})

            return is_shown

        cohort = {"metadata": {"name": "department"}, "spec": {"parentName": "all", "fairSharing": {"weight": "2"}}}
        await cluster.client.create(COHORTS, {"apiVersion": names.API_VERSION, "kind": "Cohort", **cohort})
        await cluster.with_queue(cpu=1, cohort="department")
        await cluster.create("ClusterQueue", queues.queue("owner", cpu=3, cohort="all"))
        await cluster.until(has_share(COHORTS, "department", 0), "the share of an idle cohort")
        await cluster.job("borrows", cpu=2)
        await cluster.running("borrows")
        await cluster.until(has_share(CLUSTER_QUEUES, "team", 250), "the share of the ClusterQueue")
        await cluster.until(has_share(COHORTS, "department", 125), "half of that, by the weight of the cohort")

        async def consumed() -> Any:
            status = (await share(LOCAL_QUEUES, "q", "default") or {}).get("admissionFairSharingStatus") or {}
            return (status.get("consumedResources") or {}).get("cpu")

        assert (await cluster.until(consumed, "what the LocalQueue consumed")).endswith("m")
