"""TrainJobs under the operator on a real API server, with its own service account; the test is the Job controller."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.jobset.run_cases import job_status
from tests.support.operator import Installed, denied, running

from torchyard.api.errors import StatusError
from torchyard.api.gvr import CONFIG_MAPS
from torchyard.api.gvr import JOBS as BATCH_JOBS
from torchyard.api.objects import Object
from torchyard.api.trainjob.runtimes import runtimes
from torchyard.controllers.jobset import JOBSETS
from torchyard.controllers.trainjob import RUNTIMES, TRAINJOBS
from torchyard.operator.certificates import VALIDATING
from torchyard.operator.checks import ClusterNotReady, check_no_other_trainer
from torchyard.operator.permissions import UPSTREAM_TRAINER_WEBHOOKS

pytestmark = pytest.mark.cluster


def train_job(namespace: str, name: str = "mnist", **spec: Any) -> Object:
    fields = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}, **spec}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": TRAINJOBS.api_version, "kind": "TrainJob", "metadata": metadata, "spec": fields}


async def until_state(installed: Installed, namespace: str, state: str, name: str = "mnist") -> Object:
    async def reached() -> Object | None:
        job = await installed.admin.get(TRAINJOBS, name, namespace)
        return job if (job.get("status") or {}).get("state") == state else None

    job: Object = await installed.until(reached)
    return job


async def test_a_train_job_runs_to_its_end_under_the_operators_own_role(installed: Installed) -> None:
    namespace = await installed.namespace("trainjobs")
    cluster_runtimes = RUNTIMES["ClusterTrainingRuntime"]
    async with running(installed):
        await installed.until(lambda: installed.admin.find(cluster_runtimes, "torchyard-elastic"))
        await installed.admin.create(TRAINJOBS, train_job(namespace, suspend=True))
        await until_state(installed, namespace, "Suspended")
        assert await installed.admin.find(CONFIG_MAPS, "mnist-runtime-snapshot", namespace)
        await installed.admin.patch(TRAINJOBS, "mnist", {"spec": {"suspend": False}}, namespace)

        async def is_resumed() -> bool:
            job = await installed.admin.find(BATCH_JOBS, "mnist-node-0", namespace)
            return job is not None and not job["spec"]["suspend"]

        await installed.until(is_resumed)
        job = await installed.admin.get(BATCH_JOBS, "mnist-node-0", namespace)
        status = job_status(job, {"to": "complete"})
        await installed.admin.update(BATCH_JOBS, {**job, "status": status}, subresource="status")
        done = await until_state(installed, namespace, "Complete")
        assert [(each["type"], each["reason"]) for each in done["status"]["conditions"]] == [
            ("Complete", "AllJobsCompleted")
        ]


async def test_a_job_that_does_not_fit_its_runtime_says_why(installed: Installed) -> None:
    namespace = await installed.namespace("trainjobs-bad")
    async with running(installed):
        wrong = [{"name": "PET_NNODES", "value": "1"}]
        await installed.admin.create(TRAINJOBS, train_job(namespace, trainer={"env": wrong}))

        async def reason() -> str:
            job = await installed.admin.get(TRAINJOBS, "mnist", namespace)
            conditions = (job.get("status") or {}).get("conditions") or [{}]
            return str(conditions[0].get("message", ""))

        assert "must not have reserved envs" in await installed.until(reason)
        assert await installed.admin.find(JOBSETS, "mnist", namespace) is None


async def test_a_selected_train_job_runs_though_its_jobset_lacks_the_labels(installed: Installed) -> None:
    namespace = await installed.namespace("trainjobs-selected")
    async with running(installed, namespaces=(namespace,), selector="team=a") as operator:
        for name, team in (("theirs", "b"), ("ours", "a")):
            job = train_job(namespace, name)
            job["metadata"]["labels"] = {"team": team}
            await installed.admin.create(TRAINJOBS, job)
        theirs = (await installed.admin.get(TRAINJOBS, "theirs", namespace))["metadata"]
        owner = {"apiVersion": TRAINJOBS.api_version, "kind": "TrainJob", "name": "theirs", "uid": theirs["uid"]}
        pod = {"containers": [{"name": "node", "image": "busybox"}]}
        jobset = {
            "apiVersion": JOBSETS.api_version,
            "kind": "JobSet",
            "metadata": {"name": "theirs", "ownerReferences": [{**owner, "controller": True}]},
            "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]},
        }
        await installed.admin.create(JOBSETS, jobset, namespace)
        await installed.until(lambda: installed.admin.find(BATCH_JOBS, "ours-node-0", namespace))
        assert await installed.admin.find(BATCH_JOBS, "theirs-node-0", namespace) is None
        await installed.admin.patch(TRAINJOBS, "theirs", {"metadata": {"labels": {"team": "a"}}}, namespace)
        await installed.until(lambda: installed.admin.find(BATCH_JOBS, "theirs-node-0", namespace))
        text = operator.metrics.text().decode()
        assert text.count("# TYPE jobset_failed_total") == 1


async def test_the_operator_does_not_run_beside_upstreams_trainer(installed: Installed) -> None:
    await check_no_other_trainer(installed.admin)
    await installed.admin.create(VALIDATING, {"metadata": {"name": UPSTREAM_TRAINER_WEBHOOKS}})
    try:
        with pytest.raises(ClusterNotReady, match="Kubeflow Trainer is installed"):
            await check_no_other_trainer(installed.admin)
    finally:
        await installed.admin.delete(VALIDATING, UPSTREAM_TRAINER_WEBHOOKS)


REFUSED: list[tuple[Object, str]] = [
    ({"runtimeRef": {"name": "none"}}, "specified clusterTrainingRuntime must be created before the TrainJob"),
    (
        {"runtimeRef": {"name": "none", "kind": "TrainingRuntime"}},
        "specified trainingRuntime must be created before the TrainJob is created",
    ),
    ({"runtimeRef": {"name": "x", "kind": "Other"}}, "unsupported runtime: Other.trainer.kubeflow.org"),
    ({"trainer": {"env": [{"name": "PET_NNODES", "value": "1"}]}}, "must not have reserved envs"),
    ({"trainer": {"numNodes": 0}}, "spec.trainer.numNodes"),
    ({"runtimePatches": [{"manager": "me"}]}, "must be a domain-prefixed path"),
]


async def test_the_webhooks_refuse_what_does_not_fit_and_set_the_times_of_patches(installed: Installed) -> None:
    namespace = await installed.namespace("trainjobs-reviewed")
    async with running(installed, webhook=True) as operator:
        await installed.until(lambda: installed.admin.find(RUNTIMES["ClusterTrainingRuntime"], "torchyard-elastic"))
        for spec, words in REFUSED:
            with pytest.raises(StatusError) as refused:
                await installed.admin.create(TRAINJOBS, train_job(namespace, "bad", **spec))
            assert refused.value.status == 422
            assert words in refused.value.message
        for kind, place in (("TrainingRuntime", namespace), ("ClusterTrainingRuntime", "")):
            with pytest.raises(StatusError) as refused:
                await installed.admin.create(RUNTIMES[kind], bad_runtime(kind), place)
            assert "must contain the required container for the ancestor: trainer" in refused.value.message
            assert "always must be 1" in refused.value.message
        mine = {"manager": "example.com/me"}
        created = await installed.admin.create(TRAINJOBS, train_job(namespace, runtimePatches=[mine]))
        assert created["spec"]["runtimePatches"][0]["time"]
        change = {"spec": {"runtimePatches": [mine, {"manager": "example.com/other"}]}}
        with pytest.raises(StatusError) as refused:
            await installed.admin.patch(TRAINJOBS, "mnist", change, namespace)
        assert "RuntimePatches can only be modified when the TrainJob is suspended" in refused.value.message
        assert denied(operator) == []


def bad_runtime(kind: str) -> Object:
    runtime = copy.deepcopy({**runtimes()[0], "kind": kind, "metadata": {"name": "bad"}})
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
    job["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "other"
    job["replicas"] = 2
    return runtime
