"""Jobs and their pods: how many, which, with what names. Numbers are those of the Job conformance points."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.controllers.job.conftest import Cluster
from tests.support.jobs import manifest

from torchyard.api.gvr import JOBS, PODS, RESOURCE_QUOTAS
from torchyard.api.objects import Object

INDEX = "batch.kubernetes.io/job-completion-index"


async def test_a_pod_has_the_jobs_owner_finalizer_and_name_and_not_the_templates(cluster: Cluster) -> None:
    """Conformance points 05, 06."""
    job = await cluster.create(manifest(template={"metadata": {"name": "ignored", "labels": {"app": "x"}}}))
    (pod,) = await cluster.pods(1)
    assert re.fullmatch(r"work-[bcdfghjklmnpqrstvwxz2456789]{5}", pod["metadata"]["name"])
    assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "work",
            "uid": job["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert pod["metadata"]["labels"] == {
        "app": "x",
        "job-name": "work",
        "batch.kubernetes.io/job-name": "work",
        "controller-uid": job["metadata"]["uid"],
        "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
    }


async def test_an_indexed_pod_knows_its_index_by_name_hostname_label_annotation_and_variable(
    cluster: Cluster,
) -> None:
    """Conformance point 07."""
    own = {"name": "own", "image": "busybox", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]}
    init = {"name": "first", "image": "busybox"}
    main = {"name": "main", "image": "busybox"}
    spec = {"containers": [main, own], "initContainers": [init]}
    await cluster.create(manifest(template={"spec": spec}, completionMode="Indexed", completions=2, parallelism=2))
    pods = sorted(await cluster.pods(2), key=lambda pod: pod["metadata"]["name"])
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}},
    }
    for index, pod in enumerate(pods):
        assert re.fullmatch(rf"work-{index}-[a-z0-9]{{5}}", pod["metadata"]["name"])
        assert pod["metadata"]["labels"][INDEX] == pod["metadata"]["annotations"][INDEX] == str(index)
        assert pod["spec"]["hostname"] == f"work-{index}"
        assert pod["spec"]["containers"][0]["env"] == [variable]
        assert pod["spec"]["containers"][1]["env"] == own["env"]
        assert pod["spec"]["initContainers"][0]["env"] == [variable]


async def test_a_long_job_name_is_cut_so_that_pod_names_keep_to_63_characters(cluster: Cluster) -> None:
    """Conformance point 08."""
    name = "j" * 60
    await cluster.create(manifest(name, completionMode="Indexed", completions=11, parallelism=11))
    pods = await cluster.pods(11)
    names = {pod["metadata"]["name"][:-5] for pod in pods}
    assert names == {f"{'j' * (58 - len(end))}{end}" for end in (f"-{index}-" for index in range(11))}
    assert all(len(pod["metadata"]["name"]) == 63 for pod in pods)


async def test_parallelism_limits_the_pods_and_the_last_completions_need_fewer(cluster: Cluster) -> None:
    """Conformance point 09."""
    await cluster.create(manifest(completions=5, parallelism=3))
    first = await cluster.pods(3)
    await cluster.counted(active=3)
    await cluster.succeed(*first)
    second = await cluster.pods(2)
    await cluster.counted(active=2, succeeded=3)
    await cluster.succeed(*second)
    status = await cluster.complete()
    assert (status["succeeded"], status.get("active"), len(await cluster.all_pods())) == (5, None, 5)


async def test_three_completions_with_parallelism_one_run_one_after_the_other(cluster: Cluster) -> None:
    """Conformance point 10."""
    await cluster.create(manifest(completions=3))
    for done in range(3):
        (pod,) = await cluster.pods(1)
        await cluster.counted(active=1, succeeded=done)
        await cluster.succeed(pod)
    assert (await cluster.complete())["succeeded"] == 3


async def test_a_work_queue_drains_after_the_first_success(cluster: Cluster) -> None:
    """Conformance point 11."""
    await cluster.create(manifest(parallelism=3))
    pods = await cluster.pods(3)
    await cluster.succeed(pods[0])
    await cluster.counted(active=2, succeeded=1)
    await cluster.fail(pods[1])
    await cluster.counted(active=1, succeeded=1, failed=1)
    assert len(await cluster.all_pods()) == 3
    await cluster.succeed(pods[2])
    assert (await cluster.complete())["succeeded"] == 2


async def test_creation_stops_at_the_first_rejection_with_an_event(cluster: Cluster) -> None:
    """Conformance point 12."""
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    await cluster.client.create(RESOURCE_QUOTAS, quota, cluster.namespace)
    # No quota controller runs, so the test writes the usage.
    known = {"hard": {"pods": "2"}, "used": {"pods": "0"}}
    await cluster.client.patch(RESOURCE_QUOTAS, "few", {"status": known}, cluster.namespace, subresource="status")
    await cluster.create(manifest(completions=9, parallelism=9))
    await cluster.pods(2)
    events = await cluster.events(
        ("FailedCreate", 'Error creating: pods "work-'), ("SuccessfulCreate", "Created pod: ")
    )
    refused = [event for event in events if event["reason"] == "FailedCreate"]
    assert all(item["type"] == "Warning" and "exceeded quota: few" in item["message"] for item in refused)
    await cluster.counted(active=2)


async def test_lower_parallelism_deletes_the_pods_with_the_least_progress(cluster: Cluster) -> None:
    """Conformance point 13."""
    await cluster.create(manifest(completions=9, parallelism=3))
    pods = await cluster.pods(3)
    for pod in pods[:2]:
        await cluster.bind(pod)
    await cluster.run(pods[0], ready=True)
    await cluster.counted(active=3, ready=1)
    await cluster.patch(parallelism=1)
    await cluster.counted(active=1, ready=1, failed=0)
    left = [pod for pod in await cluster.all_pods() if "deletionTimestamp" not in pod["metadata"]]
    assert [pod["metadata"]["name"] for pod in left] == [pods[0]["metadata"]["name"]]


async def test_parallelism_may_go_to_zero_and_back(cluster: Cluster) -> None:
    """Conformance point 14."""
    await cluster.create(manifest(completions=2, parallelism=2))
    await cluster.pods(2)
    await cluster.patch(parallelism=0)
    await cluster.pods(0)
    await cluster.counted(active=0, failed=0)
    await cluster.patch(parallelism=2)
    await cluster.succeed(*await cluster.pods(2))
    await cluster.complete()


async def test_an_elastic_indexed_job_takes_more_and_fewer_completions(cluster: Cluster) -> None:
    """Conformance point 35."""
    await cluster.create(manifest(completionMode="Indexed", completions=2, parallelism=2))
    await cluster.pods(2)
    await cluster.patch(completions=4, parallelism=4)
    pods = await cluster.pods(4)
    assert "can only be modified in tandem" in await cluster.refused(completions=5)
    await cluster.succeed(*(pod for pod in pods if pod["metadata"]["labels"][INDEX] == "3"))
    await cluster.counted(completedIndexes="3")
    await cluster.patch(completions=2, parallelism=2)
    left = await cluster.pods(2)
    assert {pod["metadata"]["labels"][INDEX] for pod in left} == {"0", "1"}
    await cluster.counted(completedIndexes=0, succeeded=0)
    await cluster.succeed(*left)
    assert (await cluster.complete())["completedIndexes"] == "0,1"


async def test_a_job_of_another_manager_is_ignored(cluster: Cluster) -> None:
    """Conformance point 36."""
    await cluster.create(manifest("theirs", managedBy="example.com/queue"))
    await cluster.create(manifest(managedBy="kubernetes.io/job-controller"))
    (pod,) = await cluster.pods(1)
    await cluster.succeed(pod)
    await cluster.complete()
    assert not await cluster.status("theirs")
    assert len(await cluster.all_pods()) == 1


async def test_completed_indexes_are_written_as_intervals(cluster: Cluster) -> None:
    """Conformance point 41."""
    await cluster.create(manifest(completionMode="Indexed", completions=9, parallelism=9))
    pods = {int(pod["metadata"]["labels"][INDEX]): pod for pod in await cluster.pods(9)}
    await cluster.succeed(*(pods[index] for index in (1, 3, 4, 5, 7, 8)))
    await cluster.counted(completedIndexes="1,3-5,7,8", succeeded=6)
    await cluster.succeed(*(pods[index] for index in (0, 2, 6)))
    assert (await cluster.complete())["completedIndexes"] == "0-8"


async def test_current_and_legacy_labels_select_a_jobs_pods(cluster: Cluster) -> None:
    """Conformance point 45."""
    await cluster.create(manifest())
    await cluster.create(manifest("other"))
    await cluster.pods(2)
    for label in ("job-name", "batch.kubernetes.io/job-name"):
        selected = (await cluster.client.list(PODS, cluster.namespace, labels=f"{label}=work")).items
        assert len(selected) == 1, label


async def test_an_orphan_is_adopted_and_a_pod_that_loses_its_labels_is_released(cluster: Cluster) -> None:
    selector = {"matchLabels": {"team": "red"}}
    template: Object = {"metadata": {"labels": {"team": "red"}}}
    orphan = {"metadata": {"name": "found", "labels": {"team": "red"}}, "spec": manifest()["spec"]["template"]["spec"]}
    await cluster.client.create(PODS, orphan, cluster.namespace)
    await cluster.create(manifest(manualSelector=True, selector=selector, template=template, parallelism=2))
    await cluster.counted(active=2)
    pods = {pod["metadata"]["name"]: pod for pod in await cluster.pods(2)}
    assert pods["found"]["metadata"]["ownerReferences"][0]["name"] == "work"
    assert pods["found"]["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    await cluster.client.patch(PODS, "found", {"metadata": {"labels": {"team": "blue"}}}, cluster.namespace)

    async def is_free() -> bool:
        pod = await cluster.client.get(PODS, "found", cluster.namespace)
        return not pod["metadata"].get("ownerReferences") and not pod["metadata"].get("finalizers")

    await cluster.until(is_free)
    await cluster.pods(3)


@pytest.mark.parametrize("how", ["Background", "Foreground", "Orphan"])
async def test_deleting_a_job_deletes_or_orphans_its_pods(cluster: Cluster, how: str) -> None:
    """Conformance point 33."""
    await cluster.create(manifest(completions=2, parallelism=2))
    pods = await cluster.pods(2)
    await cluster.succeed(pods[0])
    await cluster.counted(succeeded=1)
    await cluster.client.delete(JOBS, "work", cluster.namespace, propagation=how)
    await cluster.gone(JOBS, "work")
    if how != "Orphan":
        await asyncio.gather(*(cluster.gone(PODS, pod["metadata"]["name"]) for pod in pods))
        return

    async def are_free() -> bool:
        return all(
            not pod["metadata"].get("ownerReferences") and not pod["metadata"].get("finalizers")
            for pod in await cluster.all_pods()
        )

    await cluster.until(are_free)
    assert {pod["metadata"]["name"] for pod in await cluster.all_pods()} == {pod["metadata"]["name"] for pod in pods}
