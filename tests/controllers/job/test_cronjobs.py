"""CronJobs with our controller and with the real one.

No test waits for a minute to pass: a status with a last start years ago makes a start due now, and a yearly schedule
says which.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.controllers.job.conftest import Cluster
from tests.support.jobs import manifest

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CRON_JOBS, JOBS, PODS
from torchyard.api.objects import Object

YEAR = datetime.now(UTC).year
LONG_AGO = f"{YEAR - 2}-06-01T00:00:00Z"


def _minute(day: int) -> int:
    return int(datetime(YEAR, 1, day, tzinfo=UTC).timestamp()) // 60


async def _create(cluster: Cluster, **spec: Any) -> None:
    """A CronJob whose job of the first of January is due."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": manifest(backoffLimit=0)["spec"]}
    cron_spec = {"schedule": "0 0 1 1 *", "jobTemplate": template, "suspend": True, **spec}
    await cluster.client.create(CRON_JOBS, {"metadata": {"name": "tick"}, "spec": cron_spec}, cluster.namespace)
    await cluster.client.patch(
        CRON_JOBS, "tick", {"status": {"lastScheduleTime": LONG_AGO}}, cluster.namespace, subresource="status"
    )
    await _patch(cluster, suspend=False)


async def _patch(cluster: Cluster, **spec: Any) -> None:
    await cluster.client.patch(CRON_JOBS, "tick", {"spec": spec}, cluster.namespace)


async def _status(cluster: Cluster) -> Object:
    return (await cluster.client.get(CRON_JOBS, "tick", cluster.namespace)).get("status") or {}


async def _names(cluster: Cluster, ref: GroupVersionResource = JOBS) -> list[str]:
    return sorted(item["metadata"]["name"] for item in (await cluster.client.list(ref, cluster.namespace)).items)


async def _until_jobs(cluster: Cluster, *days: int) -> None:
    async def reached() -> bool:
        return await _names(cluster) == sorted(f"tick-{_minute(day)}" for day in days)

    await cluster.until(reached)


async def _until_active(cluster: Cluster, day: int) -> None:
    """Wait until the job exists and the status lists it: an earlier change would interfere with the controller."""

    async def noted() -> bool:
        active = (await _status(cluster)).get("active") or ()
        return [item["name"] for item in active] == [f"tick-{_minute(day)}"]

    await cluster.until(noted)


async def test_a_due_job_runs_and_the_status_follows_it(cluster: Cluster) -> None:
    await _create(cluster)
    await _until_jobs(cluster, 1)
    name = f"tick-{_minute(1)}"
    job = await cluster.get(name)
    cron = await cluster.client.get(CRON_JOBS, "tick", cluster.namespace)
    owner = job["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("CronJob", cron["metadata"]["uid"], True)
    assert job["metadata"]["labels"]["a"] == "b"
    stamp = "batch.kubernetes.io/cronjob-scheduled-timestamp"
    assert job["metadata"]["annotations"][stamp] == f"{YEAR}-01-01T00:00:00Z"

    async def is_active() -> bool:
        status = await _status(cluster)
        return [item["uid"] for item in status.get("active") or ()] == [job["metadata"]["uid"]]

    await cluster.until(is_active)
    assert (await _status(cluster))["lastScheduleTime"] == f"{YEAR}-01-01T00:00:00Z"
    await cluster.events(("SuccessfulCreate", f"Created job {name}"))
    await cluster.succeed(*await cluster.pods(1))

    async def is_done() -> bool:
        status = await _status(cluster)
        return not status.get("active") and bool(status.get("lastSuccessfulTime"))

    await cluster.until(is_done)
    await cluster.events(("SawCompletedJob", f"Saw completed job: {name}, condition: Complete"))


async def test_forbid_skips_while_a_job_runs_and_replace_replaces_it(cluster: Cluster) -> None:
    await _create(cluster, concurrencyPolicy="Forbid")
    await _until_active(cluster, 1)
    await _patch(cluster, schedule="0 0 2 1 *")
    # A changed schedule is evaluated when it is next due; another change makes that happen now.
    await _patch(cluster, startingDeadlineSeconds=10**8)
    message = "Not starting job because prior execution is running and concurrency policy is Forbid"
    await cluster.events(("JobAlreadyActive", message))
    assert await _names(cluster) == [f"tick-{_minute(1)}"]
    await _patch(cluster, concurrencyPolicy="Replace")
    await _until_jobs(cluster, 2)
    await cluster.events(("SuccessfulDelete", f"Deleted job tick-{_minute(1)}"))


async def test_a_start_after_its_deadline_is_skipped(cluster: Cluster) -> None:
    await _create(cluster, startingDeadlineSeconds=10)
    await cluster.create(manifest())
    await cluster.succeed(*await cluster.pods(1))
    await cluster.complete()  # by now the controllers have reconciled it
    assert await _names(cluster) == ["work"]
    await _patch(cluster, startingDeadlineSeconds=10**8)
    await _until_due(cluster)


async def _until_due(cluster: Cluster) -> None:
    async def is_created() -> bool:
        return f"tick-{_minute(1)}" in await _names(cluster)

    await cluster.until(is_created)


async def test_more_than_100_missed_starts_get_an_event(cluster: Cluster) -> None:
    await _create(cluster, schedule="* * * * *")
    text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
    await cluster.events(("TooManyMissedTimes", text))

    async def is_started() -> bool:  # the event comes first
        return len(await _names(cluster)) >= 1

    await cluster.until(is_started)


async def test_finished_jobs_beyond_the_limits_are_deleted(cluster: Cluster) -> None:
    await _create(cluster, successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    await _until_active(cluster, 1)
    await cluster.succeed(*await cluster.pods(1))
    for day in (2, 3):
        await cluster.until(lambda: _is_idle(cluster))
        # One change makes the start due. A second one while the real controller starts the job would stop it for ever:
        # it creates the job, fails to write the status, and does not find the job again.
        await _patch(cluster, schedule=f"0 0 {day} 1 *", suspend=True)
        await _patch(cluster, suspend=False)
        await _until_active(cluster, day)
        (pod,) = await cluster.pods(1)
        await (cluster.fail(pod) if day == 2 else cluster.succeed(pod))
    await _until_jobs(cluster, 3)
    await cluster.events(("SuccessfulDelete", f"Deleted job tick-{_minute(1)}"))
    await cluster.events(("SuccessfulDelete", f"Deleted job tick-{_minute(2)}"))


async def _is_idle(cluster: Cluster) -> bool:
    return not (await _status(cluster)).get("active")


async def test_deleting_a_cron_job_deletes_its_jobs_and_their_pods(cluster: Cluster) -> None:
    await _create(cluster)
    await cluster.pods(1)
    await cluster.client.delete(CRON_JOBS, "tick", cluster.namespace)

    async def empty() -> bool:
        return not await _names(cluster) and not await _names(cluster, PODS)

    await cluster.until(empty)
