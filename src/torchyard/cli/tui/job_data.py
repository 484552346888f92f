"""What the pages of one job show: the job, its replicas, its curves and its logs, as they change."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pod.columns import status_of
from torchyard.api.times import parse_rfc3339
from torchyard.cli.tui.braille import Point
from torchyard.cli.tui.log_buffer import TAIL_LINES, LogBuffer
from torchyard.console.forwarding import OWNER, ForwardingBackend
from torchyard.console.request import SampleQuery
from torchyard.core.run.line_splitter import LogLine
from torchyard.core.run.ranks import choose_replicas, rank_of
from torchyard.core.run.state import belongs_to, pods_of, run_state, short_name
from torchyard.jobs.actions import read_reasons
from torchyard.jobs.follow_logs import follow_logs
from torchyard.jobs.log_selection import LogSelection
from torchyard.jobs.target import Target
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.job_lookup import JobHandle

_PERIOD_SECONDS = 5.0
_LOAD = 0.02  # the share of the time in which curves are read
_USE = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    name: str
    rank: int | None
    node: str
    state: str
    restarts: int
    started: str  # RFC 3339


class JobData:
    """`run` until cancelled; `changed` is called when something is different."""

    def __init__(
        self, client: Client, backend: ForwardingBackend, job: JobHandle, changed: Callable[[], None], cluster: Target
    ) -> None:
        self._client, self._backend, self._changed, self._cluster = client, backend, changed, cluster
        self.handle = job
        self.is_deleted = False
        self.logs = LogBuffer(changed)
        self.reasons: list[str] = []
        self.problem = ""  # why there are no curves
        self._series: dict[tuple[str, str], list[Point]] = {}  # by name and replica
        self._pods: list[Object] = []
        self._wants_logs = asyncio.Event()
        self._job_changed = asyncio.Event()

    @property
    def object(self) -> Object:
        return self.handle.object

    async def run(self) -> None:
        job = self.handle
        labels, fields = pods_of(job.object)
        pods = Informer(self._client, PODS, namespace=job.namespace, labels=labels, fields=fields)
        objects = Informer(self._client, job.gvr, namespace=job.namespace, fields=f"metadata.name={job.name}")
        pods.on_change(lambda *_: self._update_pods(pods))
        objects.on_change(lambda *_: self._update_job(objects))
        async with asyncio.TaskGroup() as group:
            for work in (pods.run(), objects.run(), self._read_curves(), self._read_reasons(), self._follow_logs()):
                group.create_task(work)
            if not await self._backend.is_plane():  # a plane keeps what programs print
                self.follow_logs()

    def follow_logs(self) -> None:
        """Begin to read the logs. Further calls do nothing."""
        self._wants_logs.set()

    def replicas(self) -> list[ReplicaRow]:
        """The replicas in the order of their ranks."""
        return [_replica(pod, self.handle.name) for pod in choose_replicas(self._pods, self.handle.name)]

    def use(self, replica: str) -> tuple[float | None, float | None]:
        """The last measured cores and bytes of a replica."""
        cpu, memory = (self._series.get((name, replica)) for name in _USE)
        return (cpu[-1][1] if cpu else None), (memory[-1][1] if memory else None)

    def curves(self) -> dict[str, dict[str, list[Point]]]:
        """The curves by name, then by replica; what a training measures first, usage last."""
        curves: dict[str, dict[str, list[Point]]] = {}
        for (name, replica), points in self._series.items():
            curves.setdefault(name, {})[replica] = points
        for (name, replica), values in self.logs.metrics.items():
            if not self._is_sampled(name):
                curves.setdefault(name, {})[replica] = [(float(number), value) for number, value in enumerate(values)]
        ordered = sorted(curves.items(), key=lambda item: (_importance(item[0]), item[0]))
        return {name: dict(sorted(replicas.items())) for name, replicas in ordered}

    def has_times(self, name: str) -> bool:
        """Whether the points of a curve have times; those that were read from a log are counted."""
        return self._is_sampled(name)

    def _is_sampled(self, name: str) -> bool:
        return any(name == sampled for sampled, _ in self._series)

    def _update_pods(self, pods: Informer) -> None:
        uid = self.object["metadata"]["uid"]
        self._pods = [pod for pod in pods.all() if belongs_to(pod, uid)]
        self._job_changed.set()
        self._changed()

    def _update_job(self, objects: Informer) -> None:
        job = self.handle
        obj = objects.get(job.namespace, job.name)
        self.is_deleted = obj is None or obj["metadata"]["uid"] != self.object["metadata"]["uid"]
        if obj is not None and not self.is_deleted:
            identity = {"kind": self.object["kind"], "apiVersion": job.gvr.api_version}
            self.handle = JobHandle(job.gvr, {**identity, **obj})
        self._job_changed.set()
        self._changed()

    async def _read_curves(self) -> None:
        gvr = self.handle.gvr
        resource = f"{gvr.plural}.{gvr.group}" if gvr.group else gvr.plural
        query = SampleQuery(self.handle.namespace, resource, self.handle.name, 0.0)
        while True:
            begun = time.monotonic()
            try:
                document = await self._backend.samples(OWNER, query)
            except YardError as error:
                self.problem = error.message
            else:
                self.problem = ""
                self._series = {
                    (series["name"], series["replica"]): [
                        (at, value) for at, value in series["points"] if value is not None
                    ]
                    for series in document["series"]
                }
            self._changed()
            await asyncio.sleep(max(_PERIOD_SECONDS, (time.monotonic() - begun) / _LOAD))

    async def _read_reasons(self) -> None:
        """Why the job waits or has failed. Its events change without the job: it is read again now and then."""
        while True:
            self._job_changed.clear()
            state = run_state(self.object)
            if self.is_deleted or state.state == "Running" or state.succeeded:
                self.reasons = []
            else:
                try:
                    self.reasons = await read_reasons(self._client, self.handle, self._cluster)
                except YardError as error:
                    self.reasons = [f"the reason is unknown: {error.message}"]
            self._changed()
            await asyncio.sleep(1.0)
            try:
                async with asyncio.timeout(_PERIOD_SECONDS * 2):
                    await self._job_changed.wait()
            except TimeoutError:
                pass

    async def _follow_logs(self) -> None:
        await self._wants_logs.wait()
        selection = LogSelection(ranks=(), container="", pattern=re.compile(""), tail_lines=TAIL_LINES, timestamps=True)
        await follow_logs(self._client, self.handle, selection, self.logs.add, self._add_log_error)

    def _add_log_error(self, replica: str, error: StatusError) -> None:
        self.logs.add(replica, LogLine(f"-- the log cannot be read: {error.message} --"))


def age_of(text: str, now: datetime | None = None) -> float:
    """Seconds since a time in RFC 3339."""
    return ((now or datetime.now(UTC)) - parse_rfc3339(text)).total_seconds()


def _replica(pod: Object, job: str) -> ReplicaRow:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    return ReplicaRow(
        short_name(pod["metadata"]["name"], job),
        rank_of(pod),
        (pod.get("spec") or {}).get("nodeName") or "",
        status_of(pod),
        sum(container.get("restartCount") or 0 for container in containers),
        status.get("startTime") or "",
    )


def _importance(name: str) -> int:
    if name in _USE or name.startswith("gpu"):
        return 3
    lower = name.lower()
    return 0 if "loss" in lower else 1 if "acc" in lower else 2
