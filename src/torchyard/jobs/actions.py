"""What is done to a job by its name: stop, resume, delete; and what is read about it: its events, its reasons."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.errors import StatusError, YardError
from torchyard.api.objects import Object
from torchyard.core.run.explain import explain
from torchyard.core.run.record import RunRecord
from torchyard.core.run.state import run_state, suspend_patch
from torchyard.core.run.waiting import queue_name
from torchyard.jobs.past_jobs import find_record
from torchyard.jobs.target import Target
from torchyard.kube.client import Client
from torchyard.kube.job_lookup import JobHandle, events_of, find_workload, last_seen, pods_of_job
from torchyard.kube.spelling import with_suggestion


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to a job."""

    job: str
    action: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.job} {self.action}" + (f"; {self.detail}" if self.detail else "")


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job, its workload or one of its pods. `time` is RFC 3339."""

    name: str
    time: str
    type: str
    reason: str
    object: str
    message: str
    count: int


async def suspend(client: Client, job: JobHandle) -> Change:
    """Delete the pods of a job and keep the job."""
    if _is_suspended(job.object):
        hint = f"start it with `yard resume {job.name}`"
        raise YardError(f"{job.qualified_name} is suspended already", hint=hint, code="AlreadySuspended")
    await _set_suspend(client, job, suspended=True)
    return Change(job.qualified_name, "suspended", f"`yard resume {job.name}` starts it again")


async def resume(client: Client, job: JobHandle) -> Change:
    """Start a job that `suspend` suspended; one that its queue suspends starts in its turn."""
    if run_state(job.object).done:
        raise _finished(job)
    if not _is_suspended(job.object):
        hint = f"`yard why {job.name}` shows its state"
        raise YardError(f"{job.qualified_name} is not suspended", hint=hint, code="NotSuspended")
    if queue := queue_name(job.object):
        raise YardError(
            f"{job.qualified_name} is suspended by its queue {queue}, which starts it in its turn",
            hint=f"`yard why {job.name}` shows what it waits for",
            code="Queued",
        )
    await _set_suspend(client, job, suspended=False)
    return Change(job.qualified_name, "resumed")


async def delete(client: Client, job: JobHandle) -> Change:
    """Delete a job with its pods."""
    await client.delete(job.gvr, job.name, job.namespace, uid=job.object["metadata"]["uid"])
    return Change(job.qualified_name, "deleted")


async def read_events(client: Client, job: JobHandle) -> list[JobEvent]:
    """The events of a job, its workload and its pods, oldest first."""
    return [_event(event) for event in await events_of(client, job)]


async def read_reasons(client: Client, job: JobHandle, cluster: Target) -> list[str]:
    """Why a job waits or has failed, in words, with names that are spelled similarly."""
    record: RunRecord | None = None
    problems: list[str] = []
    try:
        record = await find_record(cluster, job)
    except YardError as error:  # what the cluster has is still the answer
        problems.append(error.message)
    workload = await find_workload(client, job.object)
    pods = await pods_of_job(client, job)
    lines = explain(job.object, pods, workload, await events_of(client, job), record)
    lines = [await with_suggestion(client, line, job.namespace) for line in lines]
    pending = [] if workload is None else await _pending_lines(client, workload)
    return [*lines, *pending, *problems]


async def _pending_lines(client: Client, workload: Object) -> list[str]:
    """What the job's queue lacks for it. Nothing for a user who may not read the queues and their workloads."""
    from torchyard.jobs.pending import read_queued_workloads

    try:
        queued = await read_queued_workloads(client)
    except StatusError as error:
        if error.status not in (403, 404):
            raise
        return []
    key = workload["metadata"]["namespace"], workload["metadata"]["name"]
    explanations = (queued.explain(other) for other in queued.positions if other.info.key == key)
    return [line for explanation in explanations if explanation is not None for line in explanation.lines]


def _finished(job: JobHandle) -> YardError:
    return YardError(
        f"{job.qualified_name} has finished ({run_state(job.object).state})",
        hint=f"`yard rerun {job.name}` runs it again",
        code="AlreadyFinished",
    )


def _event(event: Object) -> JobEvent:
    about = event.get("involvedObject") or {}
    return JobEvent(
        name=f"event/{event['metadata']['name']}",
        time=last_seen(event),
        type=event.get("type", ""),
        reason=event.get("reason", ""),
        object="/".join((str(about.get("kind", "")).lower(), str(about.get("name", "")))),
        message=event.get("message", ""),
        count=event.get("count") or 1,
    )


def _is_suspended(obj: Object) -> bool:
    spec = obj.get("spec") or {}
    return bool((spec.get("runPolicy") or {}).get("suspend") if obj["kind"] == "PyTorchJob" else spec.get("suspend"))


async def _set_suspend(client: Client, job: JobHandle, *, suspended: bool) -> None:
    kind, state = job.object["kind"], run_state(job.object)
    if kind == "Pod":
        hint = f"delete it with `yard delete {job.name}`"
        raise YardError(
            f"{job.qualified_name} is a Pod, which cannot be suspended", hint=hint, code="CannotChangeInPlace"
        )
    if state.done:
        raise _finished(job)
    await client.patch(job.gvr, job.name, suspend_patch(kind, suspended=suspended), job.namespace)
