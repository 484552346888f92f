"""The claim of a `pvc://` URI is mounted into the initializer, and nowhere else."""

from __future__ import annotations

import copy
from typing import Any

from torchyard.api.trainjob.runtimes import runtimes
from torchyard.api.trainjob.validation import validate, validate_runtime
from torchyard.core.trainjob.jobset import make_jobset
from torchyard.initializer.request import CLAIM_DIRECTORY

Object = dict[str, Any]


def initialized_runtime() -> Object:
    runtime = copy.deepcopy(runtimes()[0])
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    mounts = [{"name": "initializer", "mountPath": "/workspace"}]
    container = {"name": "dataset-initializer", "image": "i", "volumeMounts": mounts}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}
    template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": [container]}}}}
    jobs.insert(0, {"name": "dataset-initializer", "template": template})
    return runtime


def pods_of(uri: str) -> dict[str, Object]:
    metadata = {"name": "job", "namespace": "ns", "uid": "u"}
    spec = {"runtimeRef": {"name": "r"}, "initializer": {"dataset": {"storageUri": uri}}}
    job, runtime = {"metadata": metadata, "spec": spec}, initialized_runtime()
    assert validate_runtime(runtime) == []
    assert validate(job, runtime) == []
    jobs = make_jobset(job, runtime)["spec"]["replicatedJobs"]
    return {each["name"]: each["template"]["spec"]["template"]["spec"] for each in jobs}


def test_the_claim_of_a_uri_is_mounted_into_the_initializer() -> None:
    pods = pods_of("pvc://data/mnist")
    pod = pods["dataset-initializer"]
    claim = {"claimName": "data", "readOnly": True}
    assert pod["volumes"] == [{"name": "torchyard-claim", "persistentVolumeClaim": claim}]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {"initializer": "/workspace", "torchyard-claim": str(CLAIM_DIRECTORY)}
    assert pod["containers"][0]["env"] == [{"name": "STORAGE_URI", "value": "pvc://data/mnist"}]
    assert "volumes" not in pods["node"]


def test_other_uris_need_no_volume() -> None:
    for uri in ("file:///data", "hf://a/b", "s3://a/b", "pvc://["):
        assert "volumes" not in pods_of(uri)["dataset-initializer"]
