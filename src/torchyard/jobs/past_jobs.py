"""Jobs that have ended: those that the cluster still has, and those that only the history of the plane has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS
from torchyard.api.metadata import is_uid
from torchyard.api.suggestions import closest
from torchyard.api.times import to_rfc3339
from torchyard.core.pod.logs import LogOptions
from torchyard.core.run.line_splitter import LineSplitter, LogLine
from torchyard.core.run.program import pod_specs
from torchyard.core.run.ranks import rank_by_name
from torchyard.core.run.record import RunRecord, build_record
from torchyard.core.run.state import default_container, run_state, short_name
from torchyard.jobs.follow_logs import ShowLine
from torchyard.jobs.local_plane import local_plane
from torchyard.jobs.log_selection import LogSelection
from torchyard.jobs.log_stream import read_lines
from torchyard.jobs.target import Target
from torchyard.kube.client import Client
from torchyard.kube.job_lookup import JobHandle, find_job, list_jobs, parts_of, pods_of_job
from torchyard.node.logs import reader
from torchyard.yard.history import HistoryStore, log_files

_REQUESTS = 8  # that one call has under way
_RECORD_DELAYS = (0.02, 0.1, 0.5, 1.5)  # seconds


def plane_history(cluster: Target) -> HistoryStore | None:
    """The history of the plane that a command talks to; None for another cluster, or a plane of another machine."""
    settings = local_plane(cluster)
    return HistoryStore(settings.history) if settings is not None else None


async def list_runs(client: Client, cluster: Target, namespace: str) -> list[RunRecord]:
    """The jobs of a namespace, or of all, that have ended; the last ended first."""
    # in a thread: a busy database makes its reader wait
    recorded = await asyncio.to_thread(_recorded, cluster, namespace)
    records = {record["uid"]: record for record in recorded}
    limit = asyncio.Semaphore(_REQUESTS)

    async def read(job: JobHandle) -> RunRecord:
        async with limit:
            return build_record(job.object, await pods_of_job(client, job), datetime.now(UTC))

    ended = [job for job in await list_jobs(client, namespace) if run_state(job.object).done]
    others = (job for job in ended if job.object["metadata"]["uid"] not in records)
    for record in await asyncio.gather(*map(read, others)):
        records[record["uid"]] = record
    return sorted(records.values(), key=lambda record: record["ended"], reverse=True)


async def find_run(client: Client, cluster: Target, name: str) -> RunRecord:
    """The job of a name: the one that the cluster has, else the last one of the history."""
    try:
        job = await find_job(client, name, cluster.namespace)
    except YardError as error:
        if error.code != "NotFound":
            raise
        return await asyncio.to_thread(find_recorded, cluster, name, error)
    recorded = await find_record(cluster, job)  # its pods, and with them its logs, may be gone
    if recorded is not None:
        return recorded
    record = build_record(job.object, await pods_of_job(client, job), datetime.now(UTC))
    return record if run_state(job.object).done else {**record, "unfinished": True}


async def find_record(cluster: Target, job: JobHandle) -> RunRecord | None:
    """What the history of a plane has of a job that has ended; None for a job that has not."""
    return await asyncio.to_thread(_find_record, cluster, job) if run_state(job.object).done else None


async def wait_for_record(cluster: Target, job: JobHandle) -> RunRecord | None:
    """As `find_record`, for a job that has just ended: its plane writes the record a moment later."""
    if await asyncio.to_thread(plane_history, cluster) is None:
        return None
    for delay in _RECORD_DELAYS:
        if (record := await find_record(cluster, job)) is not None:
            return record
        await asyncio.sleep(delay)
    return await find_record(cluster, job)


def _find_record(cluster: Target, job: JobHandle) -> RunRecord | None:
    history = plane_history(cluster)
    records = history.list(job.namespace, name=job.name) if history is not None else []
    return next((record for record in records if record["uid"] == job.object["metadata"]["uid"]), None)


def find_recorded(cluster: Target, name: str, missing: YardError) -> RunRecord:
    """The last job of a name in the history. Raises `missing` if it has none, with a name that is similar."""
    plain = name.rpartition("/")[2]
    records = _recorded(cluster, cluster.namespace)
    record = next((record for record in records if record["name"] == plain), None)
    if record is not None:
        return record
    similar = closest(plain, [record["name"] for record in records])
    if similar and "did you mean" not in missing.hint:
        raise YardError(missing.message, hint=f"did you mean {similar}, which has ended?", code=missing.code)
    raise missing


def with_hint_about_deleted(cluster: Target, name: str, missing: YardError) -> YardError:
    """The error about a job that does not exist, with what a plane has kept of it."""
    plain = name.rpartition("/")[2]
    if missing.code != "NotFound" or all(record["name"] != plain for record in _recorded(cluster, cluster.namespace)):
        return missing
    hint = f"it was deleted: see `yard history {plain}` and `yard logs {plain}`; `yard rerun {plain}` runs it again"
    return YardError(missing.message, hint=hint, code=missing.code)


def _recorded(cluster: Target, namespace: str) -> list[RunRecord]:
    history = plane_history(cluster)
    return history.list(namespace) if history is not None else []


async def read_first_log(client: Client, cluster: Target, record: RunRecord) -> list[str]:
    """The lines of the first replica, from the cluster or from the history; none if both have lost them."""
    pods = [replica["pod"] for replica in record["replicas"]] or [pod for pod, _, _ in kept_logs(cluster, record)]
    pod = pods[0] if pods else record["name"]
    return await read_pod_log(client, cluster, record, pod)


async def read_pod_log(
    client: Client, cluster: Target, record: RunRecord, pod: str, *, timestamps: bool = False
) -> list[str]:
    """The lines of the main container of a pod of a job, with their times in front if asked for."""
    existing = await client.find(PODS, pod, record["namespace"])
    if existing is not None:
        try:
            container = default_container(existing)
            lines = read_lines(client, pod, record["namespace"], container, timestamps=timestamps)
            return [line.text async for line in lines]
        except StatusError:  # it has not started, or its node has lost the log
            return []
    for name, _, path in kept_logs(cluster, record):
        if name == pod:
            return [line.text async for line in read_log_file(path, timestamps=timestamps)]
    return []


async def suspended_record(client: Client, job: JobHandle) -> RunRecord:
    """A suspended job, with the controllers whose pods have left logs in the history of a plane."""
    record = build_record(job.object, [], datetime.now(UTC))
    return {**record, "controllers": [str(part["metadata"]["uid"]) for part in await parts_of(client, job)]}


def kept_logs(cluster: Target, record: RunRecord) -> list[tuple[str, str, Path]]:
    """The logs that the history has of a job: (pod, container, file), by the controllers of its pods."""
    history = plane_history(cluster)
    if history is None:
        return []
    controllers = [record["uid"], *record.get("controllers", ())]
    controllers += [replica.get("controller", "") for replica in record["replicas"]]
    # Records of earlier versions have what a user wrote as the uid of a controller.
    return [log for uid in dict.fromkeys(controllers) if is_uid(uid) for log in log_files(history.logs / uid)]


async def read_log_file(
    path: Path, selection: LogSelection | None = None, *, timestamps: bool = False
) -> AsyncGenerator[LogLine, None]:
    """The lines of a log of the history."""
    since = ""
    if selection is not None and selection.since_seconds is not None:
        since = to_rfc3339(datetime.now(UTC) - timedelta(seconds=selection.since_seconds))
    options = LogOptions(since=since, tail=selection.tail_lines if selection else None, timestamps=timestamps)
    lines = LineSplitter()
    pieces: AsyncIterator[bytes] = reader.read(path, options, ended=lambda: True)
    async for piece in pieces:
        for line in lines.of(piece):
            yield line
    if lines.rest:
        yield LogLine(lines.rest)


def _names(record: RunRecord, pod: str) -> set[str]:
    return {short_name(pod, record["name"]), str(rank_by_name(record["object"], pod))}


def print_recorded_logs(cluster: Target, record: RunRecord, selection: LogSelection, show: ShowLine) -> None:
    """Show the logs of a job that only the history has."""
    logs = kept_logs(cluster, record)
    ranks = {replica["pod"]: {replica["name"], str(replica["rank"])} for replica in record["replicas"]}
    chosen = [
        (pod, container, path)
        for pod, container, path in logs
        if (not selection.ranks or (ranks.get(pod) or _names(record, pod)) & set(selection.ranks))
        and (not selection.container or container == selection.container)
    ]
    if not chosen and logs and selection.ranks:
        known = dict.fromkeys("/".join(sorted(ranks.get(pod) or _names(record, pod))) for pod, _, _ in logs)
        raise YardError(
            f"{record['kind']} {record['name']} has no log of rank {', '.join(selection.ranks)}",
            hint=f"there are those of {', '.join(known)}",
            code="NotFound",
        )
    if not chosen:
        raise YardError(
            f"{record['kind']} {record['name']} has ended, and no such log of it is kept",
            hint=f"`yard history {record['name']}` shows how it ended; a log is kept when its pod is gone",
            code="NotFound",
        )

    main = {str(spec["containers"][0].get("name", "")) for spec in pod_specs(record["object"])} - {""}

    async def read() -> None:
        for pod, container, path in chosen:
            label = short_name(pod, record["name"])
            # of a job that has no template of its own, such as a TrainJob, the only container is the main one
            is_main = container in main or (not main and [name for name, _, _ in chosen].count(pod) == 1)
            async with aclosing(read_log_file(path, selection)) as lines:
                async for line in lines:
                    show(label if is_main else f"{label}/{container}", line)

    asyncio.run(read())
