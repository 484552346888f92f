"""Why a job waits or has failed, in words, and the command that shows more."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.core.run.failure import OOM_KILLED, first_failure
from torchyard.core.run.image_pull import image_pull, is_creating
from torchyard.core.run.ranks import rank_of
from torchyard.core.run.record import RunRecord, first_failed_replica
from torchyard.core.run.state import run_state, short_name
from torchyard.core.run.waiting import pending_reason, queue_name, queue_reason


def explain(
    job: Object, pods: list[Object], workload: Object | None, events: list[Object], record: RunRecord | None = None
) -> list[str]:
    """One sentence a line. `events` are those of the job and its pods, oldest first.

    `record` is what a plane has kept of a job that has ended: the failed pods of some kinds of jobs are deleted.
    """
    state = run_state(job)
    name = job["metadata"]["name"]
    lines = [f"{job['kind']} {name} is {state.state}" + (f": {state.message}" if state.message else "")]
    if state.done:
        return lines + ([] if state.succeeded else _failure(name, pods, record))
    if state.state == "Suspended" or (queue_name(job) and not pods):
        return lines + _suspension(job, workload) + ([] if workload else _warnings(events, lines))
    waiting = [(pod["metadata"]["name"], pending_reason(pod)) for pod in pods]
    lines += [f"{pod} waits: {reason}" for pod, reason in waiting if reason]
    pulls = {pod["metadata"]["name"]: image_pull(events, pod["metadata"]["name"]) for pod in pods if is_creating(pod)}
    lines += [f"{pod} waits: {pull}" for pod, pull in pulls.items() if pull is not None and not pull.result]
    ending = [pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp")]
    lines += [f"{pod} is terminating; the job goes on without it when its process has ended" for pod in ending]
    if not pods or len(lines) > 1:
        lines += _warnings(events, lines)
    if not pods and len(lines) == 1:
        lines.append("it has no pods yet, and no event says why; is its controller running? (`yard status`)")
    return lines


def explain_record(record: RunRecord) -> list[str]:
    """How a job that is deleted has ended."""
    message = f": {record['message']}" if record["message"] else ""
    lines = [f"{record['kind']} {record['name']} is deleted; it was {record['state']}{message}"]
    if first := first_failed_replica(record):
        lines.append(f"first to fail: {first[1]} at {first[1].at}")
    return [*lines, f"its replicas: yard history {record['name']}", f"its logs: yard logs {record['name']}"]


def _failure(name: str, pods: list[Object], record: RunRecord | None) -> list[str]:
    failure = first_failure(pods)
    rank: int | None = None
    if failure is not None:
        rank = rank_of(next(pod for pod in pods if pod["metadata"]["name"] == failure.pod))
    elif record is not None and (recorded := first_failed_replica(record)):
        rank, failure = recorded[0]["rank"], recorded[1]
    if failure is None:
        return [f"no container of it failed, or its pods are deleted: yard logs {name}, yard history {name}"]
    lines = [f"first to fail: {failure} at {failure.at}"]
    if failure.reason == OOM_KILLED:
        lines.append("raise resources.limits.memory of the container, or use a smaller batch")
    chosen = short_name(failure.pod, name) if rank is None else rank
    container = f" -c {failure.container}" if failure.is_init else ""
    return [*lines, f"its last lines: yard logs {name} --rank {chosen}{container} --tail 20"]


def _suspension(job: Object, workload: Object | None) -> list[str]:
    queue, name = queue_name(job), job["metadata"]["name"]
    if not queue:
        return [f"it is suspended; start it with: yard resume {name}"]
    reason = queue_reason(workload)
    if not reason:
        return [f"queue {queue} has admitted it"]
    return [f"it waits in queue {queue}: {reason}", f"its position: yard queue position {name}"]


def _warnings(events: list[Object], lines: list[str]) -> list[str]:
    """The latest warning of each reason, without those that repeat what the lines say."""
    latest = {event.get("reason"): str(event.get("message")) for event in events if event.get("type") == "Warning"}
    shown = "\n".join(lines)
    return [f"{reason}: {text}" for reason, text in latest.items() if text.rpartition(" message: ")[2] not in shown]
