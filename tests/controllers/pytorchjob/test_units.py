"""Upstream's unit tests of functions, through the API: the same on a plane and on a real server."""

from __future__ import annotations

import pytest
from tests.controllers.pytorchjob.conftest import Cluster
from tests.support.pytorchjobs import conditions, job, replica

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PODS, SERVICES
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages, names
from torchyard.api.pytorchjob.validation import DEPRECATED_PROCESSES
from torchyard.controllers.pytorchjob import JOBS

CREATED, RUNNING = ("Created", "True"), ("Running", "True")


async def pod_of(cluster: Cluster, name: str) -> Object:
    """The pod, once it exists."""
    pod: Object = await cluster.until(lambda: cluster.client.find(PODS, name, cluster.namespace))
    return pod


async def environment(cluster: Cluster, name: str) -> dict[str, str]:
    pod = await pod_of(cluster, name)
    return {container["name"]: container.get("value", "") for container in pod["spec"]["containers"][0]["env"]}


async def state(cluster: Cluster, name: str) -> set[str]:
    """The types of the conditions that are true."""
    return {kind for kind, status in conditions((await cluster.get(name)).get("status")) if status == "True"}


async def test_environment_and_init_container_of_a_replica(cluster: Cluster) -> None:
    """Rows U1-U4."""
    conf = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]
    whole = {"rdzvBackend": "etcd", "rdzvHost": "h", "rdzvPort": 99, "rdzvId": "id", "rdzvConf": conf}
    elastic = {
        "neither": ({}, "2:2"),
        "least": ({"minReplicas": 1}, "1:1"),
        "most": ({"maxReplicas": 3}, "3:3"),
        "both": ({"minReplicas": 1, "maxReplicas": 3}, "1:3"),
        "whole": ({"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 5, "nProcPerNode": 4, **whole}, "1:3"),
    }
    await cluster.create(job("plain", worker=1))
    for name, (policy, _) in elastic.items():
        await cluster.create(job(name, master=None, worker=2, elasticPolicy=policy))
    plain = await environment(cluster, "plain-worker-0")
    assert not [name for name in plain if name.startswith("PET_RDZV")]
    assert plain["PET_NPROC_PER_NODE"] == "auto"
    for name, (_, nodes) in elastic.items():
        env = await environment(cluster, f"{name}-worker-0")
        assert (name, env["PET_NNODES"]) == (name, nodes)
        assert env["PET_NPROC_PER_NODE"] == ("4" if name == "whole" else "auto")
        assert "initContainers" not in (await cluster.pod(f"{name}-worker-0"))["spec"]
    env = await environment(cluster, "whole-worker-0")
    assert {name: env[f"PET_{name}"] for name in ("RDZV_ENDPOINT", "RDZV_BACKEND", "RDZV_ID", "RDZV_CONF")} == {
        "RDZV_ENDPOINT": "h:99",
        "RDZV_BACKEND": "etcd",
        "RDZV_ID": "id",
        "RDZV_CONF": "a=1,b=2",
    }
    assert env["PET_MAX_RESTARTS"] == "5"
    assert [container["name"] for container in (await cluster.pod("plain-worker-0"))["spec"]["initContainers"]] == [
        "init-pytorch"
    ]
    assert "initContainers" not in (await pod_of(cluster, "plain-master-0"))["spec"]


async def test_the_deprecated_process_count_gets_a_warning(cluster: Cluster) -> None:
    """Row U5."""
    assert await cluster.warnings(job("old", elasticPolicy={"nProcPerNode": 2})) == [DEPRECATED_PROCESSES]
    assert await cluster.warnings(job("new", nprocPerNode="2")) == []


async def test_the_backoff_limit_fails_the_job_and_clean_pod_policy_applies(cluster: Cluster) -> None:
    """Row U7."""
    remaining_pods = {"None": ["-master-0", "-worker-0"], "Running": ["-worker-0"], "All": []}
    for policy in remaining_pods:
        name = f"past-{policy.lower()}"
        await cluster.create(job(name, worker=1, run={"backoffLimit": 3, "cleanPodPolicy": policy}))
    await cluster.create(job("none", worker=None, run={"backoffLimit": 0}))
    await pod_of(cluster, "none-master-0")
    await cluster.move("none-master-0", "Running")
    await cluster.conditions(CREATED, RUNNING, name="none")
    for policy, ends in remaining_pods.items():
        name = f"past-{policy.lower()}"
        await pod_of(cluster, f"{name}-master-0")
        await pod_of(cluster, f"{name}-worker-0")
        if policy == "Running":
            await cluster.move(f"{name}-worker-0", "Succeeded", code=0)
        else:
            await cluster.move(f"{name}-worker-0", "Running")
        await cluster.move(f"{name}-master-0", "Running", restarts=3)

        async def failed(name: str = name) -> bool:
            return "Failed" in await state(cluster, name)

        await cluster.until(failed)
        message = (await cluster.get(name))["status"]["conditions"][-1]["message"]
        assert message == messages.past_backoff(name)

        async def left(name: str = name, ends: list[str] = ends) -> bool:
            pod_names = [item for item in await cluster.names(PODS) if item.startswith(name)]
            return (
                pod_names
                == [f"{name}{end}" for end in ends]
                == [item for item in await cluster.names(SERVICES) if item.startswith(name)]
            )

        await cluster.until(left)
    assert await state(cluster, "none") == {"Created", "Running"}


async def test_a_deadline_of_zero_has_passed_and_a_distant_one_has_not(cluster: Cluster) -> None:
    """Row U8."""
    await cluster.create(job("far", worker=None, run={"activeDeadlineSeconds": 3600}))
    await cluster.create(job("past", worker=None, run={"activeDeadlineSeconds": 0}))
    status = await cluster.conditions(CREATED, ("Failed", "True"), name="past")
    assert status["conditions"][-1]["message"] == messages.past_deadline("past")
    await pod_of(cluster, "far-master-0")
    assert await state(cluster, "far") == {"Created"}


async def test_only_jobs_of_this_manager_are_reconciled(cluster: Cluster) -> None:
    """Row U9."""
    for name, manager in (("nobodys", None), ("ours", names.MANAGED_HERE), ("theirs", names.MANAGED_BY_MULTIKUEUE)):
        await cluster.create(job(name, worker=None, run={"managedBy": manager} if manager else {}))
    for name in ("", "other"):
        with pytest.raises(StatusError, match="managedBy: Unsupported value"):
            await cluster.create(job("refused", worker=None, run={"managedBy": name}))
    await cluster.pods("nobodys-master-0", "ours-master-0")
    await cluster.settle()
    await cluster.pods("nobodys-master-0", "ours-master-0")
    assert "status" not in await cluster.get("theirs")


async def test_a_terminating_running_pod_counts_as_failed(cluster: Cluster) -> None:
    """Row U10."""
    held = {"finalizers": ["example.org/held"]}
    await cluster.create(job(worker=replica(1, metadata=held)))
    await cluster.pods("train-master-0", "train-worker-0")
    for name in ("train-master-0", "train-worker-0"):
        await cluster.move(name, "Running")
    status = await cluster.conditions(CREATED, RUNNING)
    first = (await cluster.pod("train-worker-0"))["metadata"]["uid"]
    await cluster.client.delete(PODS, "train-worker-0", cluster.namespace, grace=0)
    status = await cluster.conditions(CREATED, ("Restarting", "True"))
    assert status["replicaStatuses"]["Worker"] == {
        "failed": 1,
        "selector": status["replicaStatuses"]["Worker"]["selector"],
    }
    await cluster.client.patch(PODS, "train-worker-0", {"metadata": {"finalizers": None}}, cluster.namespace)

    async def anew() -> bool:
        return bool((await pod_of(cluster, "train-worker-0"))["metadata"]["uid"] != first)

    await cluster.until(anew)


async def test_a_pods_restart_policy_is_the_replicas_and_its_scheduler_the_templates(cluster: Cluster) -> None:
    """Rows U11, U12."""
    expected = {"Always": "Always", "OnFailure": "OnFailure", "Never": "Never", "ExitCode": "Never"}
    for policy in expected:
        spec = {"restartPolicy": "Always", "schedulerName": "mine"}
        await cluster.create(job(policy.lower(), master=replica(1, policy=policy, spec=spec), worker=None))
    for policy, restarts in expected.items():
        pod_spec = (await pod_of(cluster, f"{policy.lower()}-master-0"))["spec"]
        assert (pod_spec["restartPolicy"], pod_spec["schedulerName"]) == (restarts, "mine")
    await cluster.events(messages.RESTART_POLICY_SET)


async def test_missing_replicas_are_created_and_surplus_ones_deleted(cluster: Cluster) -> None:
    """Row U13."""
    workers = [f"train-worker-{index}" for index in range(4)]
    await cluster.create(job(master=None, worker=3))
    await cluster.pods(*workers[:3])
    before = {name: (await cluster.pod(name))["metadata"]["uid"] for name in workers[:3]}
    await cluster.client.delete(PODS, workers[1], cluster.namespace, grace=0)

    async def filled() -> bool:
        pod = await cluster.client.find(PODS, workers[1], cluster.namespace)
        return bool(pod and pod["metadata"]["uid"] != before[workers[1]])

    await cluster.until(filled)
    for count in (4, 2):
        await cluster.patch("train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": count}}}})
        await cluster.pods(*workers[:count])
        await cluster.services(*workers[:count])
    assert (await cluster.pod(workers[0]))["metadata"]["uid"] == before[workers[0]]


async def test_exit_codes_of_signals_are_retryable_and_errors_are_not(cluster: Cluster) -> None:
    """Row U15."""
    again = {1: False, 2: False, 3: False, 130: True, 138: True}
    for code in again:
        await cluster.create(job(f"code-{code}", worker=None, policy="ExitCode"))
    for code, retried in again.items():
        name = f"code-{code}"
        before = (await pod_of(cluster, f"{name}-master-0"))["metadata"]["uid"]
        await cluster.move(f"{name}-master-0", "Failed", code=code)

        async def judged(name: str = name, before: str = before) -> str:
            pod = await cluster.client.find(PODS, f"{name}-master-0", cluster.namespace)
            if pod and pod["metadata"]["uid"] != before:
                return "made anew"
            return "failed" if "Failed" in await state(cluster, name) else ""

        assert (code, await cluster.until(judged)) == (code, "made anew" if retried else "failed")


async def test_only_a_finished_job_with_a_ttl_is_deleted(cluster: Cluster) -> None:
    """Row U16."""
    lives = {"runs": {"ttlSecondsAfterFinished": 0}, "kept": {}, "later": {"ttlSecondsAfterFinished": 3600}}
    goes = {"succeeded": {"ttlSecondsAfterFinished": 0}, "failed": {"ttlSecondsAfterFinished": 0}}
    for name, run in {**lives, **goes}.items():
        await cluster.create(job(name, worker=None, policy="Never", run=run))
    for name in (*lives, *goes):
        await pod_of(cluster, f"{name}-master-0")
    await cluster.move("runs-master-0", "Running")
    for name in ("kept", "later", "succeeded"):
        await cluster.move(f"{name}-master-0", "Succeeded", code=0)
    await cluster.move("failed-master-0", "Failed", code=1)
    for name in goes:
        await cluster.gone(name)
    await cluster.conditions(CREATED, RUNNING, name="runs")
    await cluster.conditions(CREATED, ("Succeeded", "True"), name="later")
    assert await cluster.names(JOBS) == ["kept", "later", "runs"]
