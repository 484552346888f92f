"""The number of jobs by kind, namespace and state, in the text format of Prometheus, on the plane and on a cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from torchyard.api.objects import Object
from torchyard.core.run.state import has_controller, run_state
from torchyard.kube.informer import Informer

METRIC = "torchyard_jobs"
_INDEX = "state"
STATES = ("pending", "suspended", "running", "succeeded", "failed")


class JobStateMetrics:
    """`caches` are those of each kind, one for each namespace. An index counts their jobs, so that a read is cheap."""

    def __init__(self, caches: Mapping[str, Sequence[Informer]]) -> None:
        self._caches = caches
        for kind, informers in caches.items():
            for informer in informers:
                informer.add_index(_INDEX, partial(index_values, kind))

    def text(self) -> bytes:
        counts: dict[tuple[str, str], Counter[str]] = {}
        for kind, informers in self._caches.items():
            for informer in informers:
                for value in informer.values(_INDEX):
                    namespace, state = value.split("/")
                    counts.setdefault((kind, namespace), Counter())[state] += informer.count(_INDEX, value)
        lines = [f"# HELP {METRIC} Jobs that exist, by state.", f"# TYPE {METRIC} gauge"]
        for (kind, namespace), states in sorted(counts.items()):
            labels = f"kind={json.dumps(kind)},namespace={json.dumps(namespace)}"
            lines += [f'{METRIC}{{{labels},state="{state}"}} {states[state]}' for state in STATES]
        return "\n".join([*lines, ""]).encode()


def index_values(kind: str, job: Object) -> tuple[str, ...]:
    """The namespace and the state of a job; none for one that another job has created."""
    return () if has_controller(job) else (f"{job['metadata']['namespace']}/{_state(kind, job)}",)


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
