"""A cluster whose objects, samples and logs are always the same, answered in the browser: for pictures of the pages."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.console.pages import fixed_objects
from tests.console.pages.jobs import EVENTS

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
_STATES = ("Running", "Running", "Succeeded", "Failed", "Suspended")
_OWNER = {"kind": "PyTorchJob", "name": "train-0", "uid": "job-0", "controller": True}


def _metadata(name: str, uid: str, minute: int, **more: Any) -> dict[str, Any]:
    created = f"2026-01-01T11:{minute:02d}:00Z"
    return {"name": name, "namespace": "default", "uid": uid, "creationTimestamp": created, **more}


def _job(index: int) -> dict[str, Any]:
    state = _STATES[index % len(_STATES)]
    conditions = [
        {
            "type": state,
            "status": "True",
            "reason": f"PyTorchJob{state}",
            "message": f"PyTorchJob train-{index} is {state}.",
        }
    ]
    status: dict[str, Any] = {"conditions": conditions, "startTime": "2026-01-01T11:05:00Z"}
    if state in ("Succeeded", "Failed"):
        status["completionTime"] = "2026-01-01T11:45:00Z"
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}}
    return {
        "metadata": _metadata(f"train-{index}", f"job-{index}", index, labels={"team": ("vision", "nlp")[index % 2]}),
        "spec": spec,
        "status": status,
    }


def _pod(rank: int) -> dict[str, Any]:
    role, number = ("master", 0) if rank == 0 else ("worker", rank - 1)
    labels = {
        "training.kubeflow.org/job-name": "train-0",
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(number),
    }
    container = {
        "name": "pytorch",
        "restartCount": rank % 2,
        "state": {"running": {"startedAt": "2026-01-01T11:05:02Z"}},
    }
    return {
        "metadata": _metadata(f"train-0-{role}-{number}", f"pod-{rank}", 5, labels=labels, ownerReferences=[_OWNER]),
        "spec": {"nodeName": f"node-{rank % 2}", "containers": [{"name": "pytorch", "image": "pytorch/pytorch:2.9"}]},
        "status": {"phase": "Running", "startTime": "2026-01-01T11:05:00Z", "containerStatuses": [container]},
    }


def _series(name: str, unit: str, value: Any) -> list[dict[str, Any]]:
    begin = NOW.timestamp() - 3000
    return [
        {
            "name": name,
            "replica": replica,
            "unit": unit,
            "points": [[begin + 10 * step, value(step, rank)] for step in range(300)],
        }
        for rank, replica in enumerate(("master-0", "worker-0", "worker-1", "worker-2"))
    ]


def _samples() -> dict[str, Any]:
    series = _series("loss", "", lambda step, rank: 2.5 * math.exp(-step / 80) + 0.02 * rank)
    series += _series("cpu", "cores", lambda step, rank: 1 + 0.1 * rank + 0.2 * math.sin(step / 20))
    series += _series("memory", "bytes", lambda step, rank: (1 << 30) + step * (1 << 20))
    return {"series": series, "lostBefore": None}


def _log(path: str, *, is_elastic: bool) -> str:
    if is_elastic:
        times = range(0, 20 * len(EVENTS), 20)
        lines = [
            f"2026-01-01T11:{10 + time // 60:02d}:{time % 60:02d}Z {event}"
            for time, event in zip(times, EVENTS, strict=True)
        ]
        return "".join(f"{line}\n" for line in lines) if "master-0" in path else ""
    lines = [
        f"2026-01-01T11:{10 + step // 60:02d}:{step % 60:02d}Z step={step} loss={2.5 * 0.98**step:.4f}"
        for step in range(120)
    ]
    if "master-0" in path:
        lines[100] = lines[100][:21] + "RuntimeError: the worker was lost"
    return "".join(f"{line}\n" for line in lines)


def serve(page: Any, *, has_logs: bool, replicas: int = 4, is_elastic: bool = False) -> None:
    """Answer every request of this page for data. Without logs the watches stay open, and nothing changes."""
    jobs, pods = [_job(index) for index in range(12)], [_pod(rank) for rank in range(replicas)]
    bodies: dict[str, Any] = {
        "/session": {"user": "ada", "groups": [], "context": "picture", "plane": True, "version": "0"},
        "/history": {"items": fixed_objects.ended_jobs()},
        "/pytorchjobs/train-0": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **jobs[0]},
        "/pytorchjobs": {"metadata": {"resourceVersion": "1"}, "items": jobs},
        "/namespaces/default/pods": {"metadata": {"resourceVersion": "1"}, "items": pods},
        "/pods": {"metadata": {"resourceVersion": "1"}, "items": pods},
        "/selfsubjectaccessreviews": {"status": {"allowed": True}},
        **{
            f"/{name}": {"metadata": {"resourceVersion": "1"}, "items": items}
            for name, items in {
                "clusterqueues": fixed_objects.cluster_queues(),
                "localqueues": fixed_objects.local_queues(),
                "workloads": fixed_objects.workloads(),
                "metrics.k8s.io/v1beta1/nodes": fixed_objects.node_metrics(),
                "nodes": fixed_objects.nodes(),
                "persistentvolumeclaims": fixed_objects.claims(),
                "persistentvolumes": fixed_objects.volumes(),
            }.items()
        },
    }

    def answer(route: Any) -> None:
        path = urlsplit(route.request.url).path
        body = _samples() if "/samples/" in path else next((bodies[end] for end in bodies if path.endswith(end)), None)
        if body is None:
            body = {"metadata": {"resourceVersion": "1"}, "items": []}
        if path.endswith("/pytorchjobs") and "fieldSelector" in route.request.url:
            name = parse_qs(urlsplit(route.request.url).query)["fieldSelector"][0].removeprefix("metadata.name=")
            body = {**body, "items": [each for each in jobs if each["metadata"]["name"] == name]}
        route.fulfill(json=body)

    def stream(route: Any) -> None:
        opened = json.loads(route.request.post_data or "{}").get("open") or []
        if not has_logs:
            return
        lines: list[dict[str, Any]] = [{"stream": "s"}]
        for each in opened:
            if "/log?" in each["path"]:
                lines += [
                    {"id": each["id"], "text": _log(each["path"], is_elastic=is_elastic)},
                    {"id": each["id"], "end": True},
                ]
        route.fulfill(body="".join(json.dumps(line) + "\n" for line in lines), content_type="application/x-ndjson")

    for pattern in ("**/console/k8s/**", "**/console/samples/**", "**/console/history", "**/console/session"):
        page.route(pattern, answer)
    page.route("**/console/streams**", stream)
    page.clock.set_fixed_time(NOW)
