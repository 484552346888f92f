"""Every daily command works for every kind of job. Those of the elastic kinds are in `tests/train`, which has torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.verbs import BEGUN, PORT, TICK, use_every_command
from tests.support.yard import Yard

from torchyard.api.objects import Object

SCRIPT = f"""echo {BEGUN.removesuffix("0.1")}$2
python3 -m http.server {PORT} --bind 127.0.0.1 --directory /tmp >/dev/null 2>&1 &
trap 'exit 0' TERM
while :; do echo {TICK}; sleep 0.2 & wait $!; done"""
CONTAINER: Object = {
    "name": "main",
    "image": "busybox",
    "command": ["sh", "-c", SCRIPT, "train"],
    "args": ["--lr", "0.1"],
}
PODS: Object = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [CONTAINER]}}
INDEXED: Object = {
    "parallelism": 2,
    "completions": 2,
    "completionMode": "Indexed",
    "backoffLimit": 0,
    "template": PODS,
}


def pytorchjob() -> Object:
    replica = {"replicas": 1, "restartPolicy": "Never"}
    replica["template"] = {"spec": {"containers": [{**CONTAINER, "name": "pytorch"}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "as-pytorchjob", "annotations": {"torchyard.dev/init-container": "off"}},
        "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}},
    }


def batch_job() -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "as-job"}, "spec": INDEXED}


def jobset() -> Object:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "as-jobset"},
        "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": INDEXED}}]},
    }


def trainjob() -> Object:
    trainer = {"numNodes": 2, **{field: CONTAINER[field] for field in ("image", "command", "args")}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "as-trainjob"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
    }


@pytest.mark.parametrize(
    ("job", "role"),
    [(pytorchjob(), "worker-0"), (batch_job(), "1"), (jobset(), "workers-0-1"), (trainjob(), "node-0-1")],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_every_daily_command_works(plane: Yard, job: Object, role: str, tmp_path: Path) -> None:
    use_every_command(plane, job, ranks=2, role=role, folder=tmp_path)
