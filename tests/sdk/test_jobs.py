"""The SDK on a plane with real pods, and on a real API server selected by its context."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes import Server
from tests.support.operator import PODS, Installed, installation, running
from tests.support.pytorchjobs import job as a_job
from tests.support.yard import Yard as Plane

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.sdk import JobFailed, Yard


@pytest.fixture
def yard(plane: Plane) -> Iterator[Yard]:
    with Yard(kubeconfig=plane.kubeconfig) as connection:
        yield connection


def training(name: str, script: str, *, workers: int = 1) -> Object:
    container = {"name": "pytorch", "image": "busybox", "command": ["sh", "-c", script]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": {"torchyard.dev/init-container": "off"}},
        "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": {**replica, "replicas": workers}}},
    }


def test_submit_logs_wait_and_delete(yard: Yard, tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(training("good", "echo rank $RANK; echo of $WORLD_SIZE")))
    job = yard.submit(manifest)
    assert list(job.logs(follow=True)) == ["rank 0", "of 2"]
    assert job.wait(seconds=120).succeeded
    # a job finishes with its master; a worker may still be printing
    assert list(job.logs("worker-0", follow=True)) == ["rank 1", "of 2"]
    assert "good" in [listed.name for listed in yard.jobs()] and yard.job("good").outcome().state == "Succeeded"
    job.delete()
    job.delete()
    with pytest.raises(YardError, match="no job is called good") as missing:
        yard.job("good")
    assert missing.value.code == "NotFound"


def test_job_failed_names_the_first_container_that_failed(yard: Yard) -> None:
    job = yard.submit(training("bad", "[ $RANK = 0 ] && exec sleep 600; exit 3"))
    with pytest.raises(JobFailed, match="first to fail: bad-worker-0, exit code 3") as failed:
        job.wait(seconds=120)
    assert failed.value.first is not None and failed.value.first.exit_code == 3
    job.delete()


def test_logs_end_with_a_job_whose_worker_never_started(yard: Yard) -> None:
    manifest = training("early", "echo done")
    slow = {"name": "slow", "image": "busybox", "command": ["sh", "-c", "echo waiting; sleep 600"]}
    worker = copy.deepcopy(manifest["spec"]["pytorchReplicaSpecs"]["Worker"])
    worker["template"]["spec"]["initContainers"] = [slow]
    manifest["spec"]["pytorchReplicaSpecs"]["Worker"] = worker
    job = yard.submit(manifest)
    lines = [(line.replica, line.text) for line in job.all_logs()]
    assert ("master-0", "done") in lines
    assert {replica for replica, _ in lines} <= {"master-0", "worker-0/slow"}
    with pytest.raises(YardError, match=r"early-worker-0 had not started when PyTorchJob default/early ended"):
        list(job.logs("worker-0", follow=True))
    job.delete()


def test_scale_suspend_resume_and_the_timeout_of_wait(yard: Yard) -> None:
    job = yard.submit(training("long", "echo here; exec sleep 600"))
    assert next(job.logs("worker-0", follow=True)) == "here"
    job.scale(2)
    assert next(job.logs("worker-1", follow=True)) == "here"
    with pytest.raises(TimeoutError):
        job.wait(seconds=0.1)
    job.suspend()
    assert yard.job("long").object["spec"]["runPolicy"]["suspend"] is True
    with pytest.raises(YardError, match="is suspended already"):
        job.suspend()
    job.resume()
    assert yard.job("long").object["spec"]["runPolicy"]["suspend"] is False
    with pytest.raises(YardError, match="is not suspended"):
        job.resume()
    job.delete()
    with pytest.raises(YardError, match="was deleted while it ran"):
        job.wait(seconds=120)


def test_a_manifest_must_have_exactly_one_job(yard: Yard, tmp_path: Path) -> None:
    two = tmp_path / "two.yaml"
    two.write_text(yaml.safe_dump_all([training("a", "true"), training("b", "true")]))
    with pytest.raises(YardError, match="has 2 jobs "):
        yard.submit(two)
    with pytest.raises(YardError, match="has 0 jobs \\(Job, "):
        yard.submit({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    assert {job.name for job in yard.jobs()}.isdisjoint({"a", "b"})


def test_the_sdk_works_inside_a_running_event_loop(yard: Yard) -> None:
    async def in_a_notebook() -> int:
        return len(yard.jobs(labels="nothing=has-it"))

    assert asyncio.run(in_a_notebook()) == 0


@pytest.mark.cluster
async def test_a_context_selects_a_real_server(kube: Server) -> None:
    async with installation(kube) as installed:
        namespace = await installed.namespace("by-sdk")
        async with running(installed):
            await asyncio.to_thread(_submit_and_wait, installed, kube, namespace, asyncio.get_running_loop())


def _submit_and_wait(installed: Installed, kube: Server, namespace: str, loop: asyncio.AbstractEventLoop) -> None:
    with Yard(kubeconfig=kube.kubeconfig, context="test", namespace=namespace) as yard:
        job = yard.submit({**a_job(worker=None), "metadata": {"name": "train"}})

        async def succeed() -> None:
            (pod,) = await installed.pods(namespace, 1)
            patch = {"status": {"phase": "Succeeded"}}
            await installed.admin.patch(PODS, pod["metadata"]["name"], patch, namespace, subresource="status")

        asyncio.run_coroutine_threadsafe(succeed(), loop).result()
        assert job.wait(seconds=120).succeeded and repr(job) == f"Job({namespace}/train: Succeeded)"
