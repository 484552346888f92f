"""JobSets under the operator on a real API server, with its own service account; the test is the Job controller."""

from __future__ import annotations

import aiohttp
import pytest
from tests.jobset.run_cases import job_status
from tests.support.operator import Installed, running

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.gvr import JOBS as BATCH_JOBS
from torchyard.api.gvr import PERSISTENT_VOLUME_CLAIMS, SERVICES
from torchyard.api.objects import Object
from torchyard.controllers.jobset import JOBSETS
from torchyard.operator.certificates import VALIDATING
from torchyard.operator.checks import ClusterNotReady, check_no_other_jobset_manager
from torchyard.operator.permissions import UPSTREAM_JOBSET_WEBHOOKS

pytestmark = pytest.mark.cluster


def jobset(namespace: str, **spec: object) -> Object:
    container = {"name": "main", "image": "busybox", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    pod = {"containers": [container]}
    job = {"name": "workers", "replicas": 2, "template": {"spec": {"template": {"spec": pod}}}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"templates": [{"metadata": {"name": "data"}, "spec": claim}]}]
    metadata = {"name": "train", "namespace": namespace}
    fields = {"replicatedJobs": [job], "volumeClaimPolicies": claims, **spec}
    return {"apiVersion": JOBSETS.api_version, "kind": "JobSet", "metadata": metadata, "spec": fields}


async def move(installed: Installed, namespace: str, name: str, to: str) -> None:
    job = await installed.admin.get(BATCH_JOBS, name, namespace)
    status = job_status(job, {"to": to, "reason": "BackoffLimitExceeded"})
    await installed.admin.update(BATCH_JOBS, {**job, "status": status}, subresource="status")


async def jobs(installed: Installed, namespace: str, expected: dict[str, bool]) -> None:
    """Wait for these Jobs, each suspended or not."""

    async def reached() -> bool:
        items = (await installed.admin.list(BATCH_JOBS, namespace)).items
        return {job["metadata"]["name"]: job["spec"]["suspend"] for job in items} == expected

    await installed.until(reached)


async def test_a_jobset_runs_to_its_end_under_the_operators_own_role(installed: Installed) -> None:
    namespace = await installed.namespace("jobsets")
    async with running(installed, webhook=True) as operator:
        created = await installed.admin.create(JOBSETS, jobset(namespace, suspend=True, ttlSecondsAfterFinished=0))
        assert created["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
        await jobs(installed, namespace, {"train-workers-0": True, "train-workers-1": True})
        assert await installed.admin.find(SERVICES, "train", namespace)
        assert await installed.admin.find(PERSISTENT_VOLUME_CLAIMS, "data-train", namespace)
        await installed.admin.patch(JOBSETS, "train", {"spec": {"suspend": False}}, namespace)
        await jobs(installed, namespace, {"train-workers-0": False, "train-workers-1": False})
        for index in range(2):
            await move(installed, namespace, f"train-workers-{index}", "complete")

        async def is_gone() -> bool:
            stored = await installed.admin.find(JOBSETS, "train", namespace)
            return stored is None or bool(stored["metadata"].get("deletionTimestamp"))

        await installed.until(is_gone)
        if await installed.admin.find(JOBSETS, "train", namespace):  # no garbage collector runs beside this server
            await installed.admin.patch(JOBSETS, "train", {"metadata": {"finalizers": None}}, namespace)
        url = f"http://127.0.0.1:{operator.ports['metrics']}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
    assert 'jobset_completed_total{jobset_name="train",namespace="jobsets"} 1' in text
    assert 'workqueue_depth{name="jobset-controller"}' in text


async def test_a_failed_job_restarts_the_jobset_and_bad_jobsets_are_refused(installed: Installed) -> None:
    namespace = await installed.namespace("jobset-restarts")
    async with running(installed, webhook=True):
        await installed.admin.create(JOBSETS, jobset(namespace, failurePolicy={"maxRestarts": 1}))
        again = jobset(namespace, failurePolicy={"maxRestarts": 1})
        await installed.admin.patch(JOBSETS, "train", again, namespace, kind="merge")  # as `kubectl apply` does
        await jobs(installed, namespace, {"train-workers-0": False, "train-workers-1": False})
        await move(installed, namespace, "train-workers-1", "failed")

        async def is_restarted() -> bool:
            status = (await installed.admin.get(JOBSETS, "train", namespace)).get("status") or {}
            return bool(status.get("restarts") == status.get("restartsCountTowardsMax") == 1)

        await installed.until(is_restarted)
        assert not has_true_condition(await installed.admin.get(JOBSETS, "train", namespace), "Failed")
        bad = jobset(namespace, successPolicy={"operator": "All", "targetReplicatedJobs": ["nobody"]})
        bad["metadata"]["name"] = "bad"
        with pytest.raises(StatusError, match="invalid replicatedJob name 'nobody' does not appear") as refused:
            await installed.admin.create(JOBSETS, bad)
        assert refused.value.status == 422


async def test_the_operator_leaves_a_cluster_with_upstreams_manager_alone(installed: Installed) -> None:
    hooks = {
        "apiVersion": VALIDATING.api_version,
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": UPSTREAM_JOBSET_WEBHOOKS},
    }
    await installed.admin.create(VALIDATING, hooks)
    try:
        with pytest.raises(ClusterNotReady, match="upstream's JobSet manager is installed"):
            await check_no_other_jobset_manager(installed.admin)
        async with running(installed, jobsets=False):
            pass
    finally:
        await installed.admin.delete(VALIDATING, UPSTREAM_JOBSET_WEBHOOKS)
