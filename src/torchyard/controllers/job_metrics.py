"""The number of jobs by kind, namespace and state, in the text format of Prometheus, on the plane and on a cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from torchyard.api.objects import Object
from torchyard.core.run.state import has_controller, run_state
from torchyard.kube.informer import Informer

METRIC = "torchyard_jobs"
STATES = ("pending", "suspended", "running", "succeeded", "failed")


class JobStateMetrics:
    """`caches` are those of each kind, one for each namespace. They are counted when the metrics are read."""

    def __init__(self, caches: Mapping[str, Sequence[Informer]]) -> None:
        self._caches = caches

    def text(self) -> bytes:
        counts = count_states((kind, job) for kind, caches in self._caches.items() for job in _all(caches))
        lines = [f"# HELP {METRIC} Jobs that exist, by state.", f"# TYPE {METRIC} gauge"]
        for (kind, namespace), states in sorted(counts.items()):
            labels = f"kind={json.dumps(kind)},namespace={json.dumps(namespace)}"
            lines += [f'{METRIC}{{{labels},state="{state}"}} {states[state]}' for state in STATES]
        return "\n".join([*lines, ""]).encode()


def _all(caches: Sequence[Informer]) -> Iterable[Object]:
    return (job for cache in caches for job in cache.all())


def count_states(jobs: Iterable[tuple[str, Object]]) -> dict[tuple[str, str], Counter[str]]:
    """Jobs by kind and namespace, without those that another job has created."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for kind, job in jobs:
        if not has_controller(job):
            counts.setdefault((kind, job["metadata"]["namespace"]), Counter())[_state(kind, job)] += 1
    return counts


def _state(kind: str, job: Object) -> str:
    state = run_state({**job, "kind": kind})
    if state.done:
        return "succeeded" if state.succeeded else "failed"
    if kind == "JobSet":
        return _jobset_state(job.get("status") or {}, state.state)
    return {"Suspended": "suspended", "Running": "running", "Restarting": "running"}.get(state.state, "pending")


def _jobset_state(status: Object, state: str) -> str:
    is_running = any(jobs.get("ready") or jobs.get("active") for jobs in status.get("replicatedJobsStatus") or ())
    return "suspended" if state == "Suspended" else "running" if is_running else "pending"
