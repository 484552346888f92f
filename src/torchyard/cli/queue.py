"""`yard queue`: positions of queued jobs, why they are pending, when they start; hold, resume, move."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from torchyard.api.errors import StatusError, YardError
from torchyard.api.queue import advice_messages, job_messages, names
from torchyard.cli.options import State
from torchyard.cli.output import Output, OutputOption, Quiet, Record, show_records, show_result
from torchyard.cli.target import Context, Kubeconfig, choose_connection, run_with_client

if TYPE_CHECKING:
    from torchyard.core.queue.visibility import WorkloadPosition
    from torchyard.kube.client import Client

_HELP = "Queued jobs: their positions, why they are pending, and when they start."
app = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)

Namespace = Annotated[
    str, typer.Option("-n", "--namespace", metavar="NAME", help="Namespace of the job; default: the context's.")
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="Name of a job or a workload.")]


COLUMNS = {
    "namespace": "NAMESPACE",
    "job": "JOB",
    "queue": "QUEUE",
    "clusterQueue": "CLUSTERQUEUE",
    "state": "STATE",
    "position": "POSITION",
}
WIDE_COLUMNS = {"priority": "PRIORITY", "workload": "WORKLOAD", "why": "WHY"}

T = TypeVar("T")
_CONNECTION: ContextVar[tuple[Path | None, str]] = ContextVar("kubeconfig and context")


@app.callback(help=_HELP)
def set_connection(kubeconfig: Kubeconfig = None, context: Context = "") -> None:
    _CONNECTION.set((kubeconfig, context))


def _run(state: Path | None, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run with a client of the plane in this state directory, or of the cluster that the options name."""
    return run_with_client(choose_connection(*_CONNECTION.get(), state), work)


def _context_namespace(state: Path | None) -> str:
    """The namespace of the context, as for kubectl."""
    return choose_connection(*_CONNECTION.get(), state).namespace


async def _list_positions(client: Client, namespace: str = "") -> list[WorkloadPosition]:
    """Of all workloads, or of those of a namespace."""
    from torchyard.controllers.queue.gvr import LOCAL_QUEUES, WORKLOADS
    from torchyard.core.queue.visibility import workload_positions

    local_queues = (await client.list(LOCAL_QUEUES, namespace)).items
    cluster_queue_of = {
        (obj["metadata"]["namespace"], obj["metadata"]["name"]): obj["spec"].get("clusterQueue", "")
        for obj in local_queues
    }
    return workload_positions((await client.list(WORKLOADS, namespace)).items, cluster_queue_of)


def _find_job(positions: list[WorkloadPosition], name: str, namespace: str) -> WorkloadPosition:
    in_namespace = [workload for workload in positions if workload.info.key[0] == namespace]
    for workload in in_namespace:
        owners = [owner["name"] for owner in workload.info.obj["metadata"].get("ownerReferences") or ()]
        if name in (workload.info.key[1], *owners):
            return workload
    queued = ", ".join(sorted(_job_name(workload) for workload in in_namespace)) or "none"
    raise YardError(
        f"job {name} is not queued in namespace {namespace}", hint=f"queued jobs: {queued}", code="NotFound"
    )


def _job_name(workload: WorkloadPosition) -> str:
    owners = workload.info.obj["metadata"].get("ownerReferences") or ()
    return str(owners[0]["name"]) if owners else workload.info.key[1]


@app.command("list")
def list_queues(
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", metavar="NAME", help="Namespace; default: all namespaces.")
    ] = "",
    state: State = None,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """List queued jobs in queue order.

    Example: yard queue list
    """
    positions = [
        workload for workload in _run(state, _list_positions) if not namespace or workload.info.key[0] == namespace
    ]
    rows = [
        {
            "namespace": workload.info.key[0],
            "name": f"workload/{workload.info.key[1]}",
            "job": _job_name(workload),
            "workload": workload.info.key[1],
            "queue": workload.info.queue_name,
            "clusterQueue": workload.cluster_queue,
            "priority": workload.info.priority,
            "state": workload.state,
            "position": workload.position,
            "why": workload.message,
        }
        for workload in positions
    ]
    columns = {**COLUMNS, **WIDE_COLUMNS} if output is Output.wide else COLUMNS
    show_records(rows, Output.name if quiet else output, columns=columns, empty="no queued jobs")


@app.command("position")
def position(
    job: Job,
    namespace: Namespace = "",
    state: State = None,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Show the position of a job in its queue, and an estimate of when it starts.

    Example: yard queue position mnist
    """
    from torchyard.core.queue.visibility import estimate_start

    positions = _run(state, _list_positions)
    workload = _find_job(positions, job, namespace or _context_namespace(state))
    record: Record = {
        "name": f"workload/{workload.info.key[1]}",
        "job": job,
        "state": workload.state,
        "clusterQueue": workload.cluster_queue,
        "position": workload.position,
        "startsInSeconds": None,
        "deviationSeconds": None,
    }
    if workload.position is None:
        show_result(record, output, f"{job} is not pending: {workload.state.lower()}", quiet=quiet)
        return
    text = f"{job} is at {advice_messages.position_in_queue(workload.position, workload.cluster_queue)}"
    estimate = estimate_start(workload, positions, time.time())
    if estimate is None:
        text += "\nno estimate: fewer than three jobs have finished in this ClusterQueue"
    else:
        record |= {"startsInSeconds": estimate.seconds, "deviationSeconds": estimate.deviation}
        text += f"\n{advice_messages.start_estimate(estimate.seconds, estimate.deviation)}"
    show_result(record, output, text, quiet=quiet)


@app.command("why")
def why(
    job: Job,
    namespace: Namespace = "",
    state: State = None,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Show the state of a job and, while it is pending, its position, what is missing and who uses that.

    Example: yard queue why mnist
    """
    text = _run(state, partial(_explain, job=job, namespace=namespace or _context_namespace(state)))
    show_result({"name": job, "reasons": text.split("\n")}, output, text, quiet=quiet)


async def _explain(client: Client, *, job: str, namespace: str) -> str:
    from torchyard.jobs.pending import read_queued_workloads

    try:
        queued = await read_queued_workloads(client)
    except StatusError as error:  # a user who may only read the workloads of a namespace, or a cluster without cohorts
        if error.status not in (403, 404):
            raise
        queued = None
    positions = await _list_positions(client, namespace) if queued is None else queued.positions
    try:
        workload = _find_job(positions, job, namespace)
    except YardError:
        compose_error = await _compose_error(client, job, namespace)
        if not compose_error:
            raise
        return f"Not queued: {compose_error}"
    explanation = None if queued is None else queued.explain(workload)
    lines = [] if explanation is None else explanation.lines
    return "\n".join([f"{workload.state}: {workload.message}", *lines])


async def _compose_error(client: Client, job: str, namespace: str) -> str:
    """The last event that says why no workload could be created for a job."""
    from torchyard.api.gvr import EVENTS

    fields = f"involvedObject.name={job},type=Warning"
    events = [
        event
        for event in (await client.list(EVENTS, namespace, fields=fields)).items
        if event["reason"] in (job_messages.EVENT_COMPOSE_ERROR, job_messages.EVENT_PRIORITY_CLASS_NOT_FOUND)
    ]
    latest = max(events, key=lambda event: event.get("lastTimestamp") or "", default=None)
    return str(latest["message"]) if latest is not None else ""


def _change_job(
    state: Path | None, job: str, namespace: str, change: Callable[[Client, WorkloadPosition], Awaitable[Any]]
) -> None:
    from torchyard.core.queue.visibility import FINISHED

    namespace = namespace or _context_namespace(state)

    async def work(client: Client) -> None:
        workload = _find_job(await _list_positions(client), job, namespace)
        if workload.state == FINISHED:
            raise YardError(
                f"job {job} has finished and is not queued any more",
                hint="create it again to run it again",
                code="AlreadyFinished",
            )
        await change(client, workload)

    _run(state, work)


def _set_active(active: bool) -> Callable[[Client, WorkloadPosition], Awaitable[Any]]:
    async def change(client: Client, workload: WorkloadPosition) -> None:
        from torchyard.controllers.queue.gvr import WORKLOADS

        namespace, name = workload.info.key
        await client.patch(WORKLOADS, name, {"spec": {"active": active}}, namespace)

    return change


@app.command("hold")
def hold(
    job: Job,
    namespace: Namespace = "",
    state: State = None,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Take a job out of its queue. A running job is stopped.

    Example: yard queue hold mnist
    """
    _change_job(state, job, namespace, _set_active(False))
    text = f"{job} is on hold; `yard queue resume {job}` queues it again"
    show_result({"name": job, "action": "held"}, output, text, quiet=quiet)


@app.command("resume")
def resume(
    job: Job,
    namespace: Namespace = "",
    state: State = None,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Queue a job again that is on hold.

    Example: yard queue resume mnist
    """

    async def change(client: Client, workload: WorkloadPosition) -> None:
        if workload.info.is_active:
            raise YardError(
                f"job {job} is not on hold", hint=f"`yard queue why {job}` shows its state", code="NotSuspended"
            )
        await _set_active(True)(client, workload)

    _change_job(state, job, namespace, change)
    show_result({"name": job, "action": "queued"}, output, f"{job} is queued again", quiet=quiet)


@app.command("move")
def move(
    job: Job,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="LocalQueue to move it to.")],
    namespace: Namespace = "",
    state: State = None,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Move a pending job to another queue of its namespace.

    Example: yard queue move mnist fast
    """

    async def change(client: Client, workload: WorkloadPosition) -> None:
        from torchyard.api.gvr import JOBS
        from torchyard.controllers.queue.gvr import LOCAL_QUEUES, PYTORCHJOBS, WORKLOADS

        namespace, name = workload.info.key
        if await client.find(LOCAL_QUEUES, queue, namespace) is None:
            local_queues = (await client.list(LOCAL_QUEUES, namespace)).items
            known = ", ".join(obj["metadata"]["name"] for obj in local_queues) or "none"
            raise YardError(
                f"LocalQueue {queue} doesn't exist in namespace {namespace}",
                hint=f"LocalQueues there: {known}",
                code="NotFound",
            )
        owners = workload.info.obj["metadata"].get("ownerReferences") or ()
        if not owners:
            await client.patch(WORKLOADS, name, {"spec": {"queueName": queue}}, namespace)
            return
        gvr = JOBS if owners[0]["kind"] == "Job" else PYTORCHJOBS
        patch = {"metadata": {"labels": {names.QUEUE_NAME: queue}}}
        await client.patch(gvr, owners[0]["name"], patch, namespace)

    _change_job(state, job, namespace, change)
    show_result({"name": job, "action": "moved", "queue": queue}, output, f"{job} is queued in {queue}", quiet=quiet)
