"""The jobs of the plane that the pages show."""

from __future__ import annotations

from typing import Any

from tests.support.kubernetes import Server
from tests.support.waiting import eventually

from torchyard.elastic.coordinator.event_line import event_line

PYTORCHJOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
TRAIN = """
import os, time
rank = os.environ.get("RANK", "0")
for step in range(100000):
    print(f"rank {rank} step={step} loss={2 / (step + 1):.4f}", flush=True)
    time.sleep(0.2)
"""
# What the coordinator of the elastic runtime prints in its pod, and what the first worker does.
EVENTS = (
    event_line(
        "WorldBegan",
        "2 workers from step 0: all are here",
        {"generation": 1, "members": ["a", "b"], "step": 0, "agree_ms": 3.5},
    ),
    event_line(
        "WorldFormed",
        "generation 1 made its first step",
        {"agree_ms": 3.0, "form_ms": 40.0, "first_step_ms": 105.0, "total_ms": 148.0},
    ),
    "elastic: step 40/200 loss=0.5 records=1280",
    event_line("WorkerLost", "worker-1 died <b>", {"step": 40, "detect_ms": 12.0}),
    event_line(
        "WorldBegan",
        "1 workers from step 40: worker-1 died",
        {"generation": 2, "members": ["a"], "step": 40, "agree_ms": 2.0},
    ),
    event_line(
        "WorldFormed",
        "generation 2 made its first step",
        {"detect_ms": 12.0, "leave_ms": 1.0, "form_ms": 20.0, "total_ms": 1053.0},
    ),
    event_line("CheckpointSaved", "step 50 is durable at /ckpt/step-50", {"step": 50, "sha256": "abc"}),
)
ELASTIC = f"import time\nfor line in {EVENTS!r}: print(line, flush=True); time.sleep(0.02)"
FAIL = "print('loss=1.0'); raise RuntimeError('out of memory')"


def container(program: str, **more: Any) -> dict[str, Any]:
    return {"name": "pytorch", "image": "python:3.11", "command": ["python", "-u", "-c", program], **more}


def pytorchjob(name: str, program: str, workers: int = 0, **labels: str) -> dict[str, Any]:
    def replicas(count: int) -> dict[str, Any]:
        template = {"spec": {"containers": [container(program)], "terminationGracePeriodSeconds": 0}}
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    specs = {"Master": replicas(1), **({"Worker": replicas(workers)} if workers else {})}
    metadata = {"name": name, "labels": labels}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {"pytorchReplicaSpecs": specs},
    }


def job(name: str, program: str, *, queue: str = "", cpu: str = "100m") -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [container(program, resources={"requests": {"cpu": cpu}})],
        }
    }
    spec = {"suspend": bool(queue), "backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}


def create_jobs(server: Server) -> None:
    """A training that runs, one that failed, a job that waits in its queue for ever, and the log of an elastic one."""
    for path, body in (
        (PYTORCHJOBS, pytorchjob("training", TRAIN, 1, team="vision")),
        (PYTORCHJOBS, pytorchjob("broken", FAIL, team="nlp")),
        (JOBS, job("elastic", ELASTIC)),
        (JOBS, job("too-large", "print(1)", queue="default", cpu="4000")),
    ):
        answer = server.admin.post(path, body)
        assert answer.status == 201, answer
    eventually(
        lambda: phase(server, "training") == "Running" and phase(server, "broken") == "Failed",
        "the jobs run and fail",
        60,
    )


def phase(server: Server, name: str) -> str:
    conditions = (server.admin.get(f"{PYTORCHJOBS}/{name}").json.get("status") or {}).get("conditions") or []
    true_types = [condition["type"] for condition in conditions if condition["status"] == "True"]
    return true_types[-1] if true_types else ""
