"""How Jobs finish, are suspended and are deleted. Numbers are those of the Job conformance points."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import pytest
from tests.controllers.job.conftest import Cluster
from tests.support.jobs import manifest
from tests.support.waiting import passed

from torchyard.api.gvr import JOBS, PODS
from torchyard.api.objects import Object

INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.mark.parametrize(
    ("rule", "enough"),
    [
        ({"succeededIndexes": "0,2-3"}, (0, 2, 3)),
        ({"succeededCount": 2}, (1, 4)),
        ({"succeededIndexes": "1-3", "succeededCount": 2}, (1, 3)),
    ],
)
async def test_a_success_policy_is_met_by_indexes_a_count_or_both(
    cluster: Cluster, rule: Object, enough: tuple[int, ...]
) -> None:
    """Conformance point 24."""
    spec: Object = {"completionMode": "Indexed", "completions": 5, "parallelism": 5}
    await cluster.create(manifest(**spec, successPolicy={"rules": [rule]}))
    pods = {int(pod["metadata"]["labels"][INDEX]): pod for pod in await cluster.pods(5)}
    *first, last = enough
    await cluster.succeed(*(pods[index] for index in first))
    await cluster.counted(succeeded=len(first), active=5 - len(first))
    await cluster.succeed(pods[last])
    status = await cluster.complete()
    final = status["conditions"][-1]
    assert (final["reason"], final["message"]) == ("SuccessPolicy", "Matched rules at index 0")
    assert (status["succeeded"], status.get("failed"), status.get("active")) == (len(enough), None, None)
    left = {pod["metadata"]["name"] for pod in await cluster.all_pods()}
    assert left == {pods[index]["metadata"]["name"] for index in enough}


async def test_the_final_condition_waits_until_the_last_pod_has_ended(cluster: Cluster) -> None:
    """Conformance point 25."""
    await cluster.create(manifest(completions=2, parallelism=2, backoffLimit=0))
    pods = await cluster.pods(2)
    for pod in pods:
        await cluster.bind(pod)
        await cluster.run(pod)
    await cluster.fail(pods[0])
    await cluster.conditions(("FailureTarget", "True"))
    status = await cluster.counted(active=0, terminating=1, failed=2)
    assert [condition["type"] for condition in status["conditions"]] == ["FailureTarget"]
    await cluster.delete_pod(pods[1], grace=0)
    status = await cluster.failed()
    assert status["terminating"] == 0


async def test_only_success_has_a_completion_time(cluster: Cluster) -> None:
    """Conformance point 26."""
    await cluster.create(manifest(backoffLimit=0))
    await cluster.create(manifest("other", backoffLimit=0))
    pods = {pod["metadata"]["labels"]["job-name"]: pod for pod in await cluster.pods(2)}
    await cluster.succeed(pods["work"])
    await cluster.fail(pods["other"])
    good = await cluster.complete()
    ended = good["conditions"][-1]["lastTransitionTime"]
    # Upstream reads the clock again for the condition, which may then be in the next second
    assert good["completionTime"] == ended or (
        not cluster.is_ours and good["startTime"] <= good["completionTime"] < ended
    )
    assert [(condition["reason"], condition["message"]) for condition in good["conditions"]] == [
        ("CompletionsReached", "Reached expected number of succeeded pods"),
    ] * 2
    await cluster.events(("BackoffLimitExceeded", ""))
    assert "completionTime" not in await cluster.status("other")


async def has_failed(cluster: Cluster, name: str) -> bool:
    conditions = (await cluster.status(name)).get("conditions") or ()
    return any(condition["type"] == "Failed" for condition in conditions)


async def test_a_deadline_counts_from_the_start_and_not_while_suspended(cluster: Cluster) -> None:
    """Conformance point 27."""
    await cluster.create(manifest(activeDeadlineSeconds=1, suspend=True, parallelism=2, completions=2))
    await cluster.conditions(("Suspended", "True"))
    # The deadline of another job passes meanwhile, and takes effect there only.
    await cluster.create(manifest("active", activeDeadlineSeconds=1))
    await cluster.until(partial(has_failed, cluster, "active"))
    assert len((await cluster.status())["conditions"]) == 1
    await cluster.patch(suspend=False)
    status = await cluster.conditions(("Suspended", "False"), ("FailureTarget", "True"), ("Failed", "True"))
    final = status["conditions"][-1]
    assert (final["reason"], final["message"]) == ("DeadlineExceeded", "Job was active longer than specified deadline")
    began, ended = (datetime.fromisoformat(text) for text in (status["startTime"], final["lastTransitionTime"]))
    assert (ended - began).total_seconds() >= 1
    assert (status["failed"], await cluster.all_pods()) == (2, [])


async def test_a_job_created_suspended_has_no_pods_and_no_start(cluster: Cluster) -> None:
    """Conformance point 28."""
    await cluster.create(manifest(suspend=True))
    status = await cluster.conditions(("Suspended", "True"))
    assert (status["conditions"][0]["reason"], status["conditions"][0]["message"]) == ("JobSuspended", "Job suspended")
    assert "startTime" not in status
    assert await cluster.all_pods() == []
    await cluster.events(("Suspended", "Job suspended"))


async def test_suspending_deletes_pods_and_keeps_counters_and_resuming_restarts(cluster: Cluster) -> None:
    """Conformance points 29, 30."""
    await cluster.create(manifest(completions=3, parallelism=2))
    first = await cluster.pods(2)
    await cluster.succeed(first[0])
    before = await cluster.counted(succeeded=1, active=2)
    await cluster.patch(suspend=True)
    await cluster.conditions(("Suspended", "True"))
    status = await cluster.counted(succeeded=1, failed=0, active=0, terminating=0)
    await cluster.pods(0)
    await cluster.until(passed(before["startTime"]))  # timestamps have whole seconds
    await cluster.patch(suspend=False)
    status = await cluster.conditions(("Suspended", "False"))
    assert (status["conditions"][0]["reason"], status["conditions"][0]["message"]) == ("JobResumed", "Job resumed")
    assert status["startTime"] > before["startTime"]
    await cluster.events(("Resumed", "Job resumed"))
    await cluster.succeed(*await cluster.pods(2))
    status = await cluster.conditions(("Suspended", "False"), ("SuccessCriteriaMet", "True"), ("Complete", "True"))
    assert (status["succeeded"], status.get("failed")) == (3, None)


SCHEDULING: list[Object] = [
    {"spec": {"nodeSelector": {"zone": "a"}}},
    {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}},
    {"metadata": {"labels": {"extra": "label"}}},
    {"metadata": {"annotations": {"extra": "note"}}},
    {"spec": {"schedulingGates": [{"name": "example.com/wait"}]}},
]


async def test_scheduling_fields_of_the_template_can_change_only_before_the_first_start(cluster: Cluster) -> None:
    """Conformance point 31."""
    await cluster.create(manifest(suspend=True))
    await cluster.conditions(("Suspended", "True"))
    for change in SCHEDULING:
        await cluster.patch(template=change)
    assert "spec.template: Invalid value" in await cluster.refused(template={"spec": {"activeDeadlineSeconds": 5}})
    await cluster.patch(suspend=False, template={"spec": {"schedulingGates": None}})
    (pod,) = await cluster.pods(1)
    assert pod["spec"]["nodeSelector"] == {"zone": "a"}
    assert pod["metadata"]["labels"]["extra"] == "label"
    for change in SCHEDULING:
        changed = {kind: dict.fromkeys(fields) for kind, fields in change.items()}
        if change != SCHEDULING[-1]:
            assert "field is immutable" in await cluster.refused(template=changed)


async def test_a_finished_job_is_deleted_with_its_pods_after_its_ttl(cluster: Cluster) -> None:
    """Conformance point 32."""
    await cluster.create(manifest(ttlSecondsAfterFinished=0))
    await cluster.create(manifest("later", ttlSecondsAfterFinished=1))
    await cluster.create(manifest("kept", ttlSecondsAfterFinished=3600))
    pods = await cluster.pods(3)
    await cluster.succeed(*pods)
    await cluster.gone(JOBS, "work")
    await cluster.gone(JOBS, "later")
    own = {pod["metadata"]["labels"]["job-name"]: pod["metadata"]["name"] for pod in pods}
    assert await cluster.client.find(PODS, own["work"], cluster.namespace) is None  # foreground: pods are deleted first
    await cluster.gone(PODS, own["later"])
    kept_job = await cluster.client.get(JOBS, "kept", cluster.namespace)
    assert kept_job["status"]["conditions"][-1]["type"] == "Complete"
    await cluster.patch("kept", ttlSecondsAfterFinished=0)
    await cluster.gone(JOBS, "kept")


async def test_events_have_upstreams_reasons_and_messages(cluster: Cluster) -> None:
    """Conformance point 44."""
    await cluster.create(manifest(completions=2, parallelism=2))
    pods = await cluster.pods(2)
    await cluster.patch(parallelism=1)
    (left,) = await cluster.pods(1)
    await cluster.succeed(left)
    (last,) = await cluster.pods(1)
    await cluster.succeed(last)
    await cluster.complete()
    names = {pod["metadata"]["name"] for pod in [*pods, last]}
    (gone,) = {pod["metadata"]["name"] for pod in pods} - {left["metadata"]["name"]}
    expected = [("SuccessfulCreate", f"Created pod: {name}") for name in names]
    expected += [("SuccessfulDelete", f"Deleted pod: {gone}"), ("Completed", "Job completed")]
    events = [event for event in await cluster.events(*expected) if event["involvedObject"]["kind"] == "Job"]
    assert sorted((event["reason"], event["message"]) for event in events) == sorted(expected)
    assert all(event["type"] == "Normal" and event["source"]["component"] == "job-controller" for event in events)
    assert all(event["involvedObject"]["apiVersion"] == "batch/v1" for event in events)
