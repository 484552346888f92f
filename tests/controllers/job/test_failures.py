"""Jobs whose pods fail: limits, policies, replacement. Numbers are those of the Job conformance points."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.job.conftest import Cluster
from tests.support.jobs import manifest

from torchyard.api.gvr import PODS
from torchyard.api.objects import Object

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"


def _index(pod: Object) -> int:
    return int(pod["metadata"]["labels"][INDEX])


@pytest.mark.parametrize("limit", [0, 1, 6])
async def test_a_backoff_limit_allows_that_many_failures_and_one_more(cluster: Cluster, limit: int) -> None:
    """Conformance point 15."""
    await cluster.create(manifest(backoffLimit=limit))
    for failures in range(limit + 1):
        (pod,) = await cluster.pods(1)
        await cluster.fail(pod)
        await cluster.counted(failed=failures + 1)
    status = await cluster.failed()
    assert status["conditions"][-1]["reason"] == "BackoffLimitExceeded"
    assert status["conditions"][-1]["message"] == "Job has reached the specified backoff limit"
    assert status["failed"] == len(await cluster.all_pods()) == limit + 1
    await cluster.events(("BackoffLimitExceeded", "Job has reached the specified backoff limit"))


@pytest.mark.parametrize(("limit", "enough"), [(0, 1), (2, 2)])
async def test_container_restarts_count_with_restart_policy_on_failure(
    cluster: Cluster, limit: int, enough: int
) -> None:
    """Conformance point 16."""
    await cluster.create(manifest(restart="OnFailure", backoffLimit=limit))
    (pod,) = await cluster.pods(1)
    await cluster.run(pod, restarts=enough - 1)
    await cluster.counted(active=1)
    await cluster.run(pod, restarts=enough)
    status = await cluster.failed()
    assert (status["conditions"][-1]["reason"], status["failed"]) == ("BackoffLimitExceeded", 1)
    await cluster.gone(PODS, pod["metadata"]["name"])


async def test_each_index_has_its_own_limit_and_failed_indexes_are_listed(cluster: Cluster) -> None:
    """Conformance point 18."""
    await cluster.create(manifest(completionMode="Indexed", completions=4, parallelism=4, backoffLimitPerIndex=1))
    pods = await cluster.pods(4)
    assert all(pod["metadata"]["annotations"][FAILURES] == "0" for pod in pods)
    await cluster.fail(*(pod for pod in pods if _index(pod) in (1, 2)))
    await cluster.counted(failed=2, failedIndexes=0)

    async def again() -> list[Object]:
        all_pods = await cluster.all_pods()
        return [pod for pod in all_pods if pod["metadata"]["annotations"][FAILURES] == "1"]

    async def both() -> bool:
        return len(await again()) == 2

    await cluster.until(both)
    await cluster.fail(*await again())
    await cluster.counted(failed=4, failedIndexes="1,2")
    await cluster.succeed(*(pod for pod in pods if _index(pod) in (0, 3)))
    status = await cluster.failed()
    assert status["conditions"][-1]["reason"] == "FailedIndexes"
    assert status["conditions"][-1]["message"] == "Job has failed indexes"
    assert (status["completedIndexes"], status["failedIndexes"], status["succeeded"]) == ("0,3", "1,2", 2)


async def test_too_many_failed_indexes_fail_the_job(cluster: Cluster) -> None:
    """Conformance point 19."""
    spec: Object = {"completionMode": "Indexed", "completions": 5, "parallelism": 5, "backoffLimitPerIndex": 0}
    await cluster.create(manifest(**spec, maxFailedIndexes=1))
    pods = await cluster.pods(5)
    await cluster.fail(pods[0])
    await cluster.counted(failed=1, active=4)
    await cluster.fail(pods[1])
    status = await cluster.failed()
    assert status["conditions"][-1]["reason"] == "MaxFailedIndexesExceeded"
    assert status["conditions"][-1]["message"] == "Job has exceeded the specified maximal number of failed indexes"
    assert status["failed"] == 5


def _on_codes(action: str, operator: str, *values: int, **more: Any) -> Object:
    return {"rules": [{"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}]}


@pytest.mark.parametrize(
    ("policy", "code", "ends"),
    [
        (_on_codes("FailJob", "In", 3, 42), 42, True),
        (_on_codes("FailJob", "In", 3, 42), 4, False),
        (_on_codes("FailJob", "NotIn", 3, 42), 4, True),
        (_on_codes("FailJob", "NotIn", 3, 42), 3, False),
        (_on_codes("FailJob", "In", 42, containerName="main"), 42, True),
        (_on_codes("FailJob", "In", 42, containerName="first"), 42, False),
    ],
)
async def test_exit_codes_can_fail_the_job_at_once(cluster: Cluster, policy: Object, code: int, ends: bool) -> None:
    """Conformance point 20."""
    init = {"spec": {"initContainers": [{"name": "first", "image": "busybox"}]}}
    await cluster.create(manifest(template=init, podFailurePolicy=policy))
    (pod,) = await cluster.pods(1)
    await cluster.fail(pod, code=code)
    if not ends:
        await cluster.counted(failed=1, active=1)
        return
    status = await cluster.failed()
    name = f"{cluster.namespace}/{pod['metadata']['name']}"
    assert status["conditions"][-1]["reason"] == "PodFailurePolicy"
    assert status["conditions"][-1]["message"] == (
        f"Container main for pod {name} failed with exit code {code} matching FailJob rule at index 0"
    )


async def test_an_init_containers_exit_code_counts_too(cluster: Cluster) -> None:
    """Conformance point 20."""
    init = {"spec": {"initContainers": [{"name": "first", "image": "busybox"}]}}
    await cluster.create(manifest(template=init, podFailurePolicy=_on_codes("FailJob", "In", 7)))
    (pod,) = await cluster.pods(1)
    ended = {"terminated": {"exitCode": 7, "reason": "Error"}}
    first = {"name": "first", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    await cluster.fail(pod, code=1, initContainerStatuses=[first])
    status = await cluster.failed()
    assert status["conditions"][-1]["message"].startswith("Container first for pod ")


DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
ON_DISRUPTION = {"onPodConditions": [{"type": "DisruptionTarget"}]}


async def test_a_pods_condition_can_fail_the_job(cluster: Cluster) -> None:
    """Conformance point 21."""
    await cluster.create(manifest(podFailurePolicy={"rules": [{"action": "FailJob", **ON_DISRUPTION}]}))
    (pod,) = await cluster.pods(1)
    await cluster.fail(pod, conditions=[DISRUPTED])
    status = await cluster.failed()
    name = f"{cluster.namespace}/{pod['metadata']['name']}"
    assert status["conditions"][-1]["message"] == (
        f"Pod {name} has condition DisruptionTarget matching FailJob rule at index 0"
    )


async def test_an_ignored_failure_is_replaced_and_not_counted(cluster: Cluster) -> None:
    """Conformance point 22."""
    rules = [{"action": "Ignore", **ON_DISRUPTION}]
    await cluster.create(manifest(backoffLimit=0, podFailurePolicy={"rules": rules}))
    (pod,) = await cluster.pods(1)
    await cluster.fail(pod, conditions=[DISRUPTED])
    (second,) = await cluster.pods(1)
    status = await cluster.counted(active=1, failed=0)
    assert not status.get("conditions")
    await cluster.succeed(second)
    await cluster.complete()


async def test_a_rule_can_fail_one_index_at_once(cluster: Cluster) -> None:
    """Conformance point 23."""
    policy = _on_codes("FailIndex", "In", 13)
    spec: Object = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 5}
    await cluster.create(manifest(**spec, podFailurePolicy=policy))
    pods = sorted(await cluster.pods(2), key=_index)
    await cluster.fail(pods[0], code=13)
    await cluster.counted(failedIndexes="0", active=1)
    await cluster.succeed(pods[1])
    status = await cluster.failed()
    assert (status["conditions"][-1]["reason"], len(await cluster.all_pods())) == ("FailedIndexes", 2)


async def test_a_deleted_pod_counts_as_one_failure_and_is_replaced(cluster: Cluster) -> None:
    """Conformance point 38."""
    await cluster.create(manifest())
    (pod,) = await cluster.pods(1)
    await cluster.delete_pod(pod)
    await cluster.gone(PODS, pod["metadata"]["name"])
    await cluster.counted(failed=1)


async def test_a_pod_that_its_lost_node_reports_failed_is_replaced(cluster: Cluster) -> None:
    """Conformance point 39."""
    await cluster.create(manifest())
    (pod,) = await cluster.pods(1)
    await cluster.bind(pod)
    await cluster.run(pod)
    await cluster.fail(pod, reason="NodeLost", conditions=[DISRUPTED])
    (second,) = await cluster.pods(1)
    await cluster.counted(failed=1, active=1)
    await cluster.succeed(second)
    await cluster.complete()


@pytest.mark.parametrize("policy", ["Failed", "TerminatingOrFailed"])
async def test_a_replacement_waits_for_the_end_of_a_pod_only_with_pod_replacement_policy_failed(
    cluster: Cluster, policy: str
) -> None:
    """Conformance point 40."""
    await cluster.create(manifest(podReplacementPolicy=policy, backoffLimit=9))
    (pod,) = await cluster.pods(1)
    await cluster.bind(pod)
    await cluster.run(pod)
    await cluster.delete_pod(pod, grace=3600)
    if policy == "Failed":
        status = await cluster.counted(active=0, terminating=1)
        assert not status.get("failed")
        assert len(await cluster.all_pods()) == 1
        await cluster.fail(pod)
        await cluster.pods(1)
    await cluster.counted(failed=1)
