"""`yard queue`: who waits where, why and for how long; hold, resume, move."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from torchyard.api.errors import YardError
from torchyard.api.queue import messages, names
from torchyard.cli.options import State, say
from torchyard.cli.target import Context, Kubeconfig, choose_connection, run_with_client

if TYPE_CHECKING:
    from torchyard.core.queue.visibility import Place
    from torchyard.kube.client import Client

app = typer.Typer(help="Queues: who waits where, why and for how long.", no_args_is_help=True)

Namespace = Annotated[
    str, typer.Option("-n", "--namespace", metavar="NAME", help="Namespace of the job; default: the context's.")
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="A job's or a workload's name.")]


COLUMNS = {
    "namespace": "NAMESPACE",
    "job": "JOB",
    "queue": "QUEUE",
    "clusterQueue": "CLUSTERQUEUE",
    "state": "STATE",
    "position": "POSITION",
}

T = TypeVar("T")
_NAMED: ContextVar[tuple[Path | None, str]] = ContextVar("kubeconfig and context")


class Output(StrEnum):
    table = "table"
    json = "json"


@app.callback()
def choose(kubeconfig: Kubeconfig = None, context: Context = "") -> None:
    """Queues: who waits where, why and for how long."""
    _NAMED.set((kubeconfig, context))


def _run(state: Path | None, work: Callable[[Client], Awaitable[T]]) -> T:
    """Ask the plane of this state directory, or the cluster that was named."""
    return run_with_client(choose_connection(*_NAMED.get(), state), work)


def _here(state: Path | None) -> str:
    """The namespace that the context names, as kubectl has it."""
    return choose_connection(*_NAMED.get(), state).namespace


async def _places(client: Client) -> list[Place]:
    from torchyard.controllers.queue.refs import LOCAL_QUEUES, WORKLOADS
    from torchyard.core.queue.visibility import places

    queues = (await client.list(LOCAL_QUEUES)).items
    doors = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"].get("clusterQueue", "") for one in queues
    }
    return places((await client.list(WORKLOADS)).items, doors)


def _find(places: list[Place], name: str, namespace: str) -> Place:
    for one in places:
        owners = [each["name"] for each in one.item.obj["metadata"].get("ownerReferences") or ()]
        if one.item.key[0] == namespace and name in (one.item.key[1], *owners):
            return one
    waiting = ", ".join(sorted(_job(one) for one in places if one.item.key[0] == namespace)) or "none"
    raise YardError(f"nothing called {name} is in a queue of {namespace}", hint=f"in queues there: {waiting}")


def _job(place: Place) -> str:
    owners = place.item.obj["metadata"].get("ownerReferences") or ()
    return str(owners[0]["name"]) if owners else place.item.key[1]


@app.command("list")
def list_queues(
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", metavar="NAME", help="One namespace; all if empty.")
    ] = "",
    output: Annotated[Output, typer.Option("-o", "--output", help="How to show them.")] = Output.table,
    state: State = None,
) -> None:
    """List what is in queues, first in line first."""
    found = [one for one in _run(state, _places) if not namespace or one.item.key[0] == namespace]
    rows = [
        {
            "namespace": one.item.key[0],
            "job": _job(one),
            "workload": one.item.key[1],
            "queue": one.item.queue,
            "clusterQueue": one.cluster_queue,
            "priority": one.item.priority,
            "state": one.state,
            "position": one.position,
            "why": one.why,
        }
        for one in found
    ]
    if output is Output.json:
        say(json.dumps(rows))
        return
    shown = [COLUMNS, *({key: "" if row[key] is None else str(row[key]) for key in COLUMNS} for row in rows)]
    widths = {key: max(len(row[key]) for row in shown) + 3 for key in COLUMNS}
    for row in shown:
        say("".join(f"{row[key]:<{width}}" for key, width in widths.items()).rstrip())


@app.command("position")
def position(job: Job, namespace: Namespace = "", state: State = None) -> None:
    """Say where a job is in line, and when it is likely to start."""
    from torchyard.core.queue.visibility import estimate

    places = _run(state, _places)
    place = _find(places, job, namespace or _here(state))
    if place.position is None:
        say(f"{job} does not wait: {place.state.lower()}")
        return
    say(f"{job} is number {place.position} in ClusterQueue {place.cluster_queue} (0 is next)")
    guess = estimate(place, places, time.time())
    if guess is None:
        say("no estimate: fewer than three jobs have finished in this queue yet")
    else:
        say(f"likely to start in {guess.after:.0f} s ± {guess.error:.0f} s")


@app.command("why")
def why(job: Job, namespace: Namespace = "", state: State = None) -> None:
    """Say why a job waits, or what became of it."""
    say(_run(state, partial(_told, job=job, namespace=namespace or _here(state))))


async def _told(client: Client, *, job: str, namespace: str) -> str:
    try:
        place = _find(await _places(client), job, namespace)
    except YardError:
        refusal = await _refusal(client, job, namespace)
        if not refusal:
            raise
        return f"Not queued: {refusal}"
    return f"{place.state}: {place.why}"


async def _refusal(client: Client, job: str, namespace: str) -> str:
    """What was last told of a job that no workload could be made for."""
    from torchyard.api.gvr import EVENTS

    fields = f"involvedObject.name={job},type=Warning"
    found = (await client.list(EVENTS, namespace, fields=fields)).items
    told = [one for one in found if one["reason"] in (messages.NOT_COMPOSED, messages.NO_PRIORITY_CLASS)]
    latest = max(told, key=lambda one: one.get("lastTimestamp") or "", default=None)
    return str(latest["message"]) if latest is not None else ""


def _change(state: Path | None, job: str, namespace: str, change: Callable[[Client, Place], Awaitable[Any]]) -> None:
    where = namespace or _here(state)

    async def work(client: Client) -> None:
        place = _find(await _places(client), job, where)
        if place.state == "Finished":
            raise YardError(f"{job} has finished and is in no line any more", hint="create it anew to run it again")
        await change(client, place)

    _run(state, work)


def _set_active(active: bool) -> Callable[[Client, Place], Awaitable[Any]]:
    async def change(client: Client, place: Place) -> None:
        from torchyard.controllers.queue.refs import WORKLOADS

        await client.patch(WORKLOADS, place.item.key[1], {"spec": {"active": active}}, place.item.key[0])

    return change


@app.command("hold")
def hold(job: Job, namespace: Namespace = "", state: State = None) -> None:
    """Take a job out of its line; one that runs is stopped and keeps what it can."""
    _change(state, job, namespace, _set_active(False))
    say(f"{job} is on hold; `yard queue resume {job}` puts it back")


@app.command("resume")
def resume(job: Job, namespace: Namespace = "", state: State = None) -> None:
    """Put a job that was on hold back in line."""

    async def change(client: Client, place: Place) -> None:
        if place.item.is_active:
            raise YardError(f"{job} is not on hold", hint=f"`yard queue why {job}` says how it is")
        await _set_active(True)(client, place)

    _change(state, job, namespace, change)
    say(f"{job} waits in its queue again")


@app.command("move")
def move(
    job: Job,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The LocalQueue to move it to.")],
    namespace: Namespace = "",
    state: State = None,
) -> None:
    """Move a waiting job to another queue of its namespace."""

    async def change(client: Client, place: Place) -> None:
        from torchyard.api.gvr import JOBS
        from torchyard.controllers.queue.refs import LOCAL_QUEUES, PYTORCHJOBS, WORKLOADS

        where = place.item.key[0]
        if await client.find(LOCAL_QUEUES, queue, where) is None:
            known = ", ".join(one["metadata"]["name"] for one in (await client.list(LOCAL_QUEUES, where)).items)
            raise YardError(f"LocalQueue {queue} doesn't exist in {where}", hint=f"there are: {known or 'none'}")
        owners = place.item.obj["metadata"].get("ownerReferences") or ()
        if not owners:
            await client.patch(WORKLOADS, place.item.key[1], {"spec": {"queueName": queue}}, where)
            return
        ref = JOBS if owners[0]["kind"] == "Job" else PYTORCHJOBS
        await client.patch(ref, owners[0]["name"], {"metadata": {"labels": {names.QUEUE_NAME: queue}}}, where)

    _change(state, job, namespace, change)
    say(f"{job} waits in {queue} now")
