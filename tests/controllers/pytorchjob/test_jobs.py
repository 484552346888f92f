"""PyTorchJobs as a client sees them, on the one-machine plane and on a real API server."""

from __future__ import annotations

import base64
import json

import pytest
from tests.controllers.pytorchjob.conftest import Cluster
from tests.support.pytorchjobs import conditions, job, replica
from tests.support.waiting import passed

from torchyard.api.errors import StatusError
from torchyard.api.gvr import HORIZONTAL_POD_AUTOSCALERS, PODS, SECRETS, SERVICES
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages, names
from torchyard.api.pytorchjob.crd import QUEUE_IMMUTABLE
from torchyard.controllers.pytorchjob import JOBS

ALL = ("train-master-0", "train-worker-0", "train-worker-1")
CREATED, RUNNING, SUCCEEDED = ("Created", "True"), ("Running", "True"), ("Succeeded", "True")


async def test_a_job_runs_and_succeeds_with_its_master(cluster: Cluster) -> None:
    """Row T1."""
    ports = {"ports": [{"name": names.PORT_NAME, "containerPort": 8080}]}
    created = await cluster.create(job(master=replica(1, container=ports), worker=replica(2, container=ports)))
    await cluster.pods(*ALL)
    await cluster.services(*ALL)
    for name in ALL:
        pod = await cluster.pod(name)
        service = await cluster.client.get(SERVICES, name, cluster.namespace)
        env = {container["name"]: container["value"] for container in pod["spec"]["containers"][0]["env"]}
        assert env["MASTER_PORT"] == str(service["spec"]["ports"][0]["port"]) == "8080"
        assert env["MASTER_ADDR"] == "train-master-0"
        assert env["PET_NPROC_PER_NODE"] == "auto"
        for owned in (pod, service):
            owner = owned["metadata"]["ownerReferences"][0]
            assert (owner["uid"], owner["controller"]) == (created["metadata"]["uid"], True)
    await cluster.move("train-master-0", "Running")
    await cluster.conditions(CREATED, RUNNING)
    await cluster.move("train-master-0", "Succeeded", code=0)
    status = await cluster.conditions(CREATED, ("Running", "False"), SUCCEEDED)
    assert status["replicaStatuses"]["Master"]["succeeded"] == 1
    assert status["completionTime"] >= status["startTime"]
    events = await cluster.events(messages.HAS_SUCCEEDED, messages.EXITED)
    counts = [
        (event["reason"], event.get("count")) for event in events if event["involvedObject"]["kind"] == "PyTorchJob"
    ]
    assert sorted(counts) == sorted(
        [(messages.POD_CREATED, 1)] * 3
        + [(messages.SERVICE_CREATED, 1)] * 3
        + [(messages.EXITED, 1), (messages.HAS_SUCCEEDED, 1)]
    )


async def test_the_queue_label_is_immutable(cluster: Cluster) -> None:
    """Row T2."""
    await cluster.create(job(run={"schedulingPolicy": {"queue": "one"}}))
    with pytest.raises(StatusError, match=QUEUE_IMMUTABLE) as refused:
        await cluster.patch("train", {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "two"}}}})
    assert refused.value.status == 422
    assert (await cluster.get())["spec"]["runPolicy"]["schedulingPolicy"]["queue"] == "one"


async def test_a_job_can_be_suspended_and_resumed_repeatedly(cluster: Cluster) -> None:
    """Rows T3, T4."""
    await cluster.create(job(run={"suspend": True}))
    status = await cluster.conditions(CREATED, ("Suspended", "True"))
    assert "startTime" not in status
    assert await cluster.names(PODS) == await cluster.names(SERVICES) == []
    await cluster.patch("train", {"spec": {"runPolicy": {"suspend": False}}})
    await cluster.pods(*ALL)
    for name in ALL:
        await cluster.move(name, "Running")
    first = await cluster.conditions(CREATED, ("Suspended", "False"), RUNNING)
    # Timestamps have whole seconds, and the next start must differ.
    await cluster.until(passed(first["startTime"]))
    await cluster.patch("train", {"spec": {"runPolicy": {"suspend": True}}})
    await cluster.pods()
    await cluster.services()
    paused = await cluster.conditions(CREATED, ("Running", "False"), ("Suspended", "True"))
    assert paused["startTime"] == first["startTime"]
    assert not any(status.get("active") for status in paused["replicaStatuses"].values())
    await cluster.patch("train", {"spec": {"runPolicy": {"suspend": False}}})
    await cluster.pods(*ALL)
    await cluster.services(*ALL)
    for name in ALL:
        await cluster.move(name, "Running")
    again = await cluster.conditions(CREATED, ("Suspended", "False"), RUNNING)
    assert again["startTime"] > first["startTime"]


async def test_a_job_of_another_manager_is_ignored(cluster: Cluster) -> None:
    """Row T5."""
    run = {"managedBy": names.MANAGED_BY_MULTIKUEUE, "suspend": True}
    await cluster.create(job(run=run))
    await cluster.create(job("other", worker=None))
    await cluster.patch("train", {"spec": {"runPolicy": {"suspend": False}}})
    await cluster.pods("other-master-0")
    await cluster.settle()
    assert await cluster.names(PODS) == ["other-master-0"]
    assert conditions((await cluster.get()).get("status")) == []


async def test_an_elastic_job_with_metrics_has_an_autoscaler(cluster: Cluster) -> None:
    """Rows T6, T7."""
    target = {"type": "Utilization", "averageUtilization": 80}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    policy = {"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 3, "metrics": metrics}
    await cluster.create(job(master=None, worker=1, elasticPolicy=policy))
    await cluster.pods("train-worker-0")
    await cluster.autoscalers("train")
    pod = await cluster.pod("train-worker-0")
    env = {container["name"]: container["value"] for container in pod["spec"]["containers"][0]["env"]}
    assert env["PET_RDZV_BACKEND"] == "c10d"
    assert env["PET_NNODES"] == "1:3"
    assert env["PET_RDZV_ENDPOINT"] == "train-worker-0:23456"
    assert env["PET_MAX_RESTARTS"] == "3"
    before = await cluster.client.get(HORIZONTAL_POD_AUTOSCALERS, "train", cluster.namespace)
    await cluster.patch("train", {"spec": {"runPolicy": {"suspend": True}}})
    await cluster.autoscalers()
    await cluster.patch("train", {"spec": {"runPolicy": {"suspend": False}}})
    await cluster.autoscalers("train")
    after = await cluster.client.get(HORIZONTAL_POD_AUTOSCALERS, "train", cluster.namespace)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    await cluster.pods("train-worker-0")
    await cluster.move("train-worker-0", "Succeeded", code=0)
    await cluster.conditions(CREATED, ("Suspended", "False"), SUCCEEDED)


async def test_clean_pod_policy_running_deletes_running_pods_and_their_services(cluster: Cluster) -> None:
    """Rows U6, C2."""
    await cluster.create(job(run={"cleanPodPolicy": "Running"}))
    await cluster.pods(*ALL)
    await cluster.move("train-worker-0", "Running")
    await cluster.move("train-master-0", "Succeeded", code=0)
    await cluster.pods("train-master-0")
    await cluster.services("train-master-0")


async def test_a_deadline_takes_effect_without_any_other_event(cluster: Cluster) -> None:
    """Row C3."""
    await cluster.create(job(run={"activeDeadlineSeconds": 1, "cleanPodPolicy": "All"}))
    await cluster.pods(*ALL)
    status = await cluster.conditions(CREATED, ("Failed", "True"))
    assert status["conditions"][1]["message"] == messages.past_deadline("train")
    await cluster.pods()
    await cluster.services()


async def test_container_restarts_reach_the_backoff_limit(cluster: Cluster) -> None:
    """Row C4."""
    await cluster.create(job(run={"backoffLimit": 3, "cleanPodPolicy": "All"}))
    await cluster.pods(*ALL)
    for name in ALL:
        await cluster.move(name, "Running", restarts=1)
    status = await cluster.conditions(CREATED, ("Running", "False"), ("Failed", "True"))
    assert status["conditions"][-1]["message"] == messages.past_backoff("train")
    await cluster.pods()


@pytest.mark.parametrize("code", [0, 1])
async def test_a_finished_job_is_deleted_after_its_ttl(cluster: Cluster, code: int) -> None:
    """Row C5."""
    await cluster.create(job(worker=None, policy="Never", run={"ttlSecondsAfterFinished": 1}))
    await cluster.pods("train-master-0")
    await cluster.move("train-master-0", "Failed" if code else "Succeeded", code=code)
    await cluster.gone("train")
    await cluster.pods()


async def test_a_replica_killed_by_a_signal_is_recreated_and_counted(cluster: Cluster) -> None:
    """Rows U14, C7."""
    await cluster.create(job(policy="ExitCode", run={"backoffLimit": 2}))
    await cluster.pods(*ALL)
    for name in ALL:
        await cluster.move(name, "Running")
    await cluster.conditions(CREATED, RUNNING)
    first = (await cluster.pod("train-worker-0"))["metadata"]["uid"]
    await cluster.move("train-worker-0", "Failed", code=137)

    async def anew() -> bool:
        pod = await cluster.client.find(PODS, "train-worker-0", cluster.namespace)
        return pod is not None and pod["metadata"]["uid"] != first

    await cluster.until(anew)
    await cluster.conditions(CREATED, ("Restarting", "True"))
    await cluster.move("train-worker-0", "Running")
    await cluster.conditions(CREATED, RUNNING)
    await cluster.move("train-worker-0", "Failed", code=137)
    await cluster.conditions(CREATED, ("Running", "False"), ("Failed", "True"))
    events = await cluster.events(messages.IS_RESTARTING, messages.HAS_FAILED)
    assert [event.get("count") for event in events if event["reason"] == messages.IS_RESTARTING] == [1]


async def test_an_error_exit_fails_the_job_with_a_completion_time(cluster: Cluster) -> None:
    """Row C8."""
    await cluster.create(job(policy="ExitCode"))
    await cluster.pods(*ALL)
    await cluster.move("train-worker-1", "Failed", code=1)
    status = await cluster.conditions(CREATED, ("Failed", "True"))
    assert status["completionTime"]


async def test_scaling_by_the_scale_subresource(cluster: Cluster) -> None:
    """Rows C9, C10."""
    await cluster.create(job())
    await cluster.pods(*ALL)
    for name in ALL:
        await cluster.move(name, "Running")

    async def scale(replicas: int) -> Object:
        return await cluster.client.patch(
            JOBS, "train", {"spec": {"replicas": replicas}}, cluster.namespace, subresource="scale"
        )

    await scale(4)
    await cluster.pods(*ALL, "train-worker-2", "train-worker-3")
    await cluster.services(*ALL, "train-worker-2", "train-worker-3")
    await scale(1)
    await cluster.pods(*ALL[:2])
    await cluster.services(*ALL[:2])
    await cluster.conditions(CREATED, RUNNING)
    current_scale = await cluster.client.get(JOBS, "train", cluster.namespace, subresource="scale")
    assert current_scale["status"]["replicas"] == 1
    assert current_scale["status"]["selector"].endswith("replica-type=worker")


async def test_a_pod_of_another_owner_is_not_adopted(cluster: Cluster) -> None:
    """Row U17."""
    stranger = {"metadata": {"name": "train-master-0"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await cluster.client.create(PODS, stranger, cluster.namespace)
    await cluster.create(job(worker=None))
    await cluster.events(messages.POD_NOT_CREATED)
    await cluster.client.delete(PODS, "train-master-0", cluster.namespace, grace=0)

    async def ours() -> bool:
        pod = await cluster.client.find(PODS, "train-master-0", cluster.namespace)
        return bool(pod and pod["metadata"].get("ownerReferences"))

    await cluster.until(ours)


async def test_a_job_recreated_under_its_name_starts_from_scratch(cluster: Cluster) -> None:
    await cluster.create(job(worker=None))
    await cluster.pods("train-master-0")
    first = (await cluster.pod("train-master-0"))["metadata"]["uid"]
    await cluster.client.delete(JOBS, "train", cluster.namespace)
    await cluster.create(job(worker=None))

    async def anew() -> bool:
        pod = await cluster.client.find(PODS, "train-master-0", cluster.namespace)
        return bool(pod and pod["metadata"]["uid"] != first)

    await cluster.until(anew)


async def test_pods_deleted_after_success_are_not_recreated(cluster: Cluster) -> None:
    await cluster.create(job(worker=None))
    await cluster.pods("train-master-0")
    await cluster.move("train-master-0", "Succeeded", code=0)
    await cluster.conditions(CREATED, SUCCEEDED)
    await cluster.client.delete(PODS, "train-master-0", cluster.namespace, grace=0)
    await cluster.pods()
    await cluster.settle()
    assert await cluster.names(PODS) == []


async def test_a_job_without_a_run_policy_is_read_back_with_one(cluster: Cluster) -> None:
    manifest = job(worker=None)
    del manifest["spec"]["runPolicy"]
    assert (await cluster.create(manifest))["spec"]["runPolicy"] == {"suspend": False}


async def test_limits_that_are_null_are_accepted(cluster: Cluster) -> None:
    await cluster.create(job(master=replica(1, container={"resources": {"limits": None}}), worker=None))
    await cluster.pods("train-master-0")


async def test_the_pods_of_an_elastic_job_get_their_token_from_a_secret(cluster: Cluster) -> None:
    """Whoever may read jobs and pods, but no secrets, must not be able to take part in a job."""
    policy = {"minReplicas": 1, "maxReplicas": 2, "rdzvBackend": "torchyard"}
    created = await cluster.create(job(master=None, worker=replica(2), elasticPolicy=policy))
    await cluster.pods("train-worker-0", "train-worker-1")
    pod = await cluster.pod("train-worker-1")
    (variable,) = (env for env in pod["spec"]["containers"][0]["env"] if env["name"] == "TORCHYARD_ELASTIC_TOKEN")
    reference = variable["valueFrom"]["secretKeyRef"]
    secret = await cluster.client.get(SECRETS, reference["name"], cluster.namespace)
    token = base64.b64decode(secret["data"][reference["key"]]).decode()
    assert len(token) == 32
    assert token not in json.dumps([created, pod])
    assert secret["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
    await cluster.client.delete(PODS, "train-worker-1", cluster.namespace, grace=0)
    await cluster.pods("train-worker-0", "train-worker-1")
    assert await cluster.client.get(SECRETS, reference["name"], cluster.namespace) == secret
