"""A queued job that lacks what admission would change is rejected by validation, not by an internal error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from tests.security.plane_support import plane_client

QUEUE = "kueue.x-k8s.io/queue-name"
ELASTIC = "kueue.x-k8s.io/elastic-job"
PYTORCHJOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
CONTAINER = {"name": "a", "image": "b"}
REPLICAS = {"Master": {"replicas": 1, "template": {"spec": {"containers": [{**CONTAINER, "name": "pytorch"}]}}}}
MISSING = object()

CASES: list[tuple[str, str, Any, int]] = [
    (PYTORCHJOBS, "PyTorchJob", MISSING, 422),
    (PYTORCHJOBS, "PyTorchJob", None, 422),
    (PYTORCHJOBS, "PyTorchJob", 5, 422),
    (PYTORCHJOBS, "PyTorchJob", {}, 422),
    (PYTORCHJOBS, "PyTorchJob", {"pytorchReplicaSpecs": REPLICAS, "runPolicy": 5}, 422),
    (PYTORCHJOBS, "PyTorchJob", {"pytorchReplicaSpecs": REPLICAS, "runPolicy": None}, 201),
    (JOBS, "Job", MISSING, 422),
    (JOBS, "Job", None, 422),
    (JOBS, "Job", {}, 422),
    (JOBS, "Job", {"template": {}}, 422),
    (JOBS, "Job", {"template": None}, 422),
    (JOBS, "Job", {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}, 201),
    (PODS, "Pod", MISSING, 422),
    (PODS, "Pod", None, 422),
    (PODS, "Pod", {}, 422),
    (PODS, "Pod", {"containers": [CONTAINER], "schedulingGates": None}, 201),
]


async def test_an_incomplete_job_with_a_queue_is_invalid(tmp_path: Path) -> None:
    answers = []
    async with plane_client(tmp_path) as client:
        for path, kind, spec, _ in CASES:
            api_version = "v1" if kind == "Pod" else "batch/v1" if kind == "Job" else "kubeflow.org/v1"
            annotations = {ELASTIC: "true"} if kind == "Job" else {}
            metadata = {"generateName": "a-", "labels": {QUEUE: "q"}, "annotations": annotations}
            obj = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
            if spec is not MISSING:
                obj["spec"] = spec
            response = await client.send("POST", path, orjson.dumps(obj))
            answers.append((kind, spec, response.status, response.body))
    assert [status for _, _, status, _ in answers] == [status for _, _, _, status in CASES], answers
