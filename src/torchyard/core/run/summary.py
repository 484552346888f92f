"""One line about a job: its state, how many of its replicas run, the queue it waits in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from torchyard.api.objects import Object
from torchyard.api.progress import progress_text_of
from torchyard.core.run.state import job_statuses, run_state
from torchyard.core.run.tracking import TrackingLink, tracking_links
from torchyard.core.run.waiting import queue_name


@dataclass(frozen=True, slots=True)
class JobSummary:
    """`ready` of `replicas` run."""

    namespace: str
    name: str
    kind: str
    state: str
    ready: int
    replicas: int
    queue: str
    age: timedelta
    message: str = ""
    progress: str = ""
    queue_position: int | None = None  # from 0, as Kueue counts; None: it does not wait, or nobody may know
    links: tuple[TrackingLink, ...] = ()


def summarize(obj: Object, now: datetime, queue_position: int | None = None) -> JobSummary:
    """The summary of a job of one of the `RUNNABLE` kinds."""
    state = run_state(obj)
    metadata = obj["metadata"]
    ready, replicas = count_replicas(obj)
    return JobSummary(
        metadata["namespace"],
        metadata["name"],
        obj["kind"],
        state.state,
        ready,
        replicas,
        queue_name(obj),
        now - datetime.fromisoformat(metadata["creationTimestamp"]),
        state.message,
        progress_text_of(obj),
        queue_position,
    )


def summarize_with_links(obj: Object, now: datetime, queue_position: int | None = None) -> JobSummary:
    """As `summarize`, with links to experiment trackers, for which the pod templates are read."""
    return replace(summarize(obj, now, queue_position), links=tracking_links(obj))


def count_replicas(obj: Object) -> tuple[int, int]:
    """How many replicas run, and how many there are to be."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    match obj["kind"]:
        case "Pod":
            return int(status.get("phase") == "Running"), 1
        case "Job":
            return status.get("ready") or 0, _parallel_pods(spec)
        case "TrainJob":
            nodes = int((spec.get("trainer") or {}).get("numNodes") or 1)
            return nodes * any(each.get("ready") for each in job_statuses(obj)), nodes
        case "JobSet":
            return _replicated(obj)
        case _:
            statuses = (status.get("replicaStatuses") or {}).values()
            specs = (spec.get("pytorchReplicaSpecs") or {}).values()
            running = sum(replica.get("active") or 0 for replica in statuses)
            return running, sum(_count(replica, "replicas") for replica in specs)


def _replicated(jobset: Object) -> tuple[int, int]:
    """The pods of the Jobs that are ready, and of all Jobs. A JobSet counts its Jobs, not their pods."""
    ready_jobs = {each["name"]: each.get("ready") or 0 for each in job_statuses(jobset)}
    ready = total = 0
    for replicated in jobset["spec"].get("replicatedJobs") or ():
        pods = _parallel_pods(replicated["template"].get("spec") or {})
        ready += ready_jobs.get(replicated["name"], 0) * pods
        total += _count(replicated, "replicas") * pods
    return ready, total


def _parallel_pods(job_spec: Object) -> int:
    parallelism = _count(job_spec, "parallelism")
    return min(parallelism, int(job_spec.get("completions") or parallelism))


def _count(spec: Object, field: str) -> int:
    """A number of replicas, which is 1 by default; a field without a value is not set."""
    value = spec.get(field)
    return 1 if value is None else int(value)
