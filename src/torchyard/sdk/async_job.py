"""One job, for asynchronous programs: its state, the logs of its replicas, how it finished and why."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.progress import trainer_status_of
from torchyard.api.pytorchjob import names
from torchyard.core.run.failure import ContainerFailure, first_failure
from torchyard.core.run.metrics import last_metrics, parse_metrics
from torchyard.core.run.progress import TrainingProgress, parse_progress
from torchyard.core.run.ranks import choose_replicas
from torchyard.core.run.record import first_failed_replica
from torchyard.core.run.state import RunState, default_container, run_state
from torchyard.core.run.summary import JobSummary, summarize_with_links
from torchyard.core.run.tracking import TrackingLink, tracking_links
from torchyard.jobs import actions
from torchyard.jobs.actions import JobEvent, read_events, read_reasons
from torchyard.jobs.follow_logs import stream_logs
from torchyard.jobs.function_source import RESULT, RESULT_PROBLEM
from torchyard.jobs.log_selection import LogSelection
from torchyard.jobs.log_stream import follow_lines, read_lines
from torchyard.jobs.past_jobs import wait_for_record
from torchyard.jobs.target import Target
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.job_lookup import JobHandle, pods_of_job
from torchyard.sdk.live import show_until_done
from torchyard.sdk.metric_follower import MetricFollower
from torchyard.sdk.views import JobSnapshot, ReplicaLine, job_view

_PROGRESS_LINES = 200  # progress is in one of the last lines
_ALL = re.compile("")


class JobFailed(YardError):
    """A job finished without success.

    `outcome` holds the job's state and message, `first` the container that failed before all others, if there is one.
    """

    code = "JobFailed"

    def __init__(self, job: str, result: RunState, first: ContainerFailure | None) -> None:
        message = f"{job} {result.state}" + (f": {result.message}" if result.message else "")
        if first is not None:
            message += f"; first to fail: {first}"
        super().__init__(message)
        self.outcome, self.first = result, first


class AsyncJob:
    """A job of any kind on a cluster.

    `object` is the state last read; every method sends a request to the server.
    """

    def __init__(self, client: Client, handle: JobHandle, cluster: Target) -> None:
        self._client, self._gvr, self._cluster = client, handle.gvr, cluster
        self.object = handle.object
        self.name, self.namespace, self.kind = handle.name, handle.namespace, str(handle.object["kind"])

    def __repr__(self) -> str:
        return f"Job({self.namespace}/{self.name}: {run_state(self.object).state})"

    def _repr_html_(self) -> str:
        """The state last read, for notebooks. `await job.view()` has the replicas and metrics as well."""
        return job_view(self._handle, [], [])._repr_html_()

    async def outcome(self) -> RunState:
        """Read the object and return its state."""
        return run_state(await self._read())

    async def summary(self) -> JobSummary:
        """Read the object and return one line about it: state, replicas, queue, age."""
        return summarize_with_links(await self._read(), datetime.now(UTC))

    async def links(self) -> list[TrackingLink]:
        """Read the object and return links to the experiment trackers that its environment names."""
        return list(tracking_links(await self._read()))

    async def pods(self) -> list[Object]:
        """Return the pods of the job, sorted by name."""
        return await pods_of_job(self._client, self._handle)

    async def wait(self, *, seconds: float | None = None) -> RunState:
        """Wait until the job has finished.

        Raises JobFailed if it did not succeed, and TimeoutError if it has not finished after `seconds`.
        """
        uid = self.object["metadata"]["uid"]

        def has_finished(obj: Object | None) -> bool:
            if obj is None or obj["metadata"]["uid"] != uid:
                raise YardError(f"{self.kind} {self.namespace}/{self.name} was deleted while it ran", code="Gone")
            return run_state({"kind": self.kind, **obj}).done

        async with asyncio.timeout(seconds):
            last = await self._wait_for(self._gvr, self.name, has_finished)
        self._set(last or {})
        result = run_state(self.object)
        if not result.succeeded:
            raise JobFailed(f"{self.kind} {self.namespace}/{self.name}", result, await self._first_failure())
        return result

    async def result(self, *, seconds: float | None = None) -> Any:
        """Wait for a job that `train` started, and return what its function returned on rank 0."""
        await self.wait(seconds=seconds)
        pod = await self._client.get(PODS, await self._pod_name(""), self.namespace)
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        for status in statuses:
            message = ((status.get("state") or {}).get("terminated") or {}).get("message") or ""
            record = _result_record(message)
            if RESULT in record:
                return record[RESULT]
            if RESULT_PROBLEM in record:
                raise YardError(str(record[RESULT_PROBLEM]), hint="write it to a volume", code="NoResult")
        raise YardError(
            f"{self.kind} {self.namespace}/{self.name} has left no result",
            hint="only functions that train() starts return one",
            code="NoResult",
        )

    async def logs(
        self, replica: str = "", *, container: str = "", follow: bool = False, tail: int | None = None
    ) -> AsyncGenerator[str, None]:
        """Yield the log lines of one replica.

        `replica` is a name such as `master-0`, or a rank; the default is the first replica. With `follow`, wait until
        the replica runs and yield its lines until it ends. `container` is by default the pod's default container, or
        its first. `tail` is the number of last lines; with `follow`, of those that a running replica has written.
        """
        pod = await self._pod_name(replica)
        if follow:
            current = await self._client.find(PODS, pod, self.namespace)
            if current is None or not _has_started(current):
                tail = None  # all of its lines are new
                await self._wait_for_start(pod)
        if not container:
            container = default_container(await self._client.get(PODS, pod, self.namespace))
        lines = (
            follow_lines(self._client, pod, self.namespace, container, tail_lines=tail)
            if follow
            else read_lines(self._client, pod, self.namespace, container, tail_lines=tail)
        )
        async with aclosing(lines) as stream:
            async for line in stream:
                yield line.text

    async def all_logs(self) -> AsyncGenerator[ReplicaLine, None]:
        """Yield the lines of all replicas as they come, until the job has finished."""
        selection = LogSelection(ranks=(), container="", pattern=_ALL)
        async with aclosing(stream_logs(self._client, self._handle, selection)) as lines:
            async for label, line in lines:
                if not line.overwritten:
                    yield ReplicaLine(label, line.text)

    async def progress(self, replica: str = "") -> TrainingProgress | None:
        """Return the progress that a replica has printed last; None if it has printed none."""
        lines = [line async for line in self.logs(replica, tail=_PROGRESS_LINES)]
        parsed = (parse_progress(line) for line in reversed(lines))
        return next((progress for progress in parsed if progress is not None), None)

    async def trainer_status(self) -> Object | None:
        """Return the progress that the job shows, as KEP-2779 defines it; None if the job has not reported any.

        `progressPercentage`, `estimatedRemainingSeconds`, `metrics` (`name` and `value`) and `lastUpdatedTime`.
        """
        await self._read()
        return trainer_status_of(self.object)

    async def metrics(self, replica: str = "") -> dict[str, float]:
        """Return the last value of every metric that a replica has printed, such as `loss=0.25`."""
        return last_metrics([line async for line in self.logs(replica)])

    async def metric_rows(self, replica: str = "", *, follow: bool = False) -> AsyncGenerator[dict[str, float], None]:
        """Yield the metrics of every line that has some; `pandas.DataFrame` reads the rows of the synchronous form."""
        async with aclosing(self.logs(replica, follow=follow)) as lines:
            async for line in lines:
                if row := parse_metrics(line):
                    yield row

    async def why(self) -> list[str]:
        """Return why the job waits or has failed, in words, as `yard why`."""
        await self._read()
        return await read_reasons(self._client, self._handle, self._cluster)

    async def events(self) -> list[JobEvent]:
        """Return the events of the job, its workload and its pods, oldest first."""
        return await read_events(self._client, self._handle)

    async def view(self) -> JobSnapshot:
        """Return the job with its replicas and metrics: a table in a terminal (rich), HTML in a notebook."""
        await self._read()
        pods = await self.pods()
        return job_view(self._handle, pods, await self._printed_rows() if pods else [])

    async def show(self) -> JobSnapshot:
        """Show the job until it has finished, in a notebook or a terminal, and return its last view."""
        follower = MetricFollower(lambda: self.metric_rows(follow=True))

        async def read() -> JobSnapshot:
            if run_state(await self._read()).done:
                return await self.view()  # with the last lines, which the stream may not have had yet
            pods = await self.pods()
            if first := choose_replicas(pods, self.name)[:1]:
                follower.observe(first[0])
            return job_view(self._handle, pods, follower.rows)

        try:
            return await show_until_done(read, lambda: run_state(self.object).done)
        finally:
            await follower.close()

    async def scale(self, workers: int) -> None:
        """Set the number of workers of a PyTorchJob."""
        patch = {"spec": {"replicas": workers}}
        await self._client.patch(self._gvr, self.name, patch, self.namespace, subresource="scale")

    async def suspend(self) -> None:
        """Set `suspend`: the controller deletes the pods and keeps the job. One that has finished is an error."""
        await self._read()
        await actions.suspend(self._client, self._handle)

    async def resume(self) -> None:
        """Clear `suspend`. A job that is not suspended, or that its queue suspends, is an error."""
        await self._read()
        await actions.resume(self._client, self._handle)

    async def delete(self) -> None:
        """Delete the job and its pods. A job that no longer exists is not an error."""
        try:
            await self._client.delete(self._gvr, self.name, self.namespace, uid=self.object["metadata"]["uid"])
        except StatusError as error:
            if error.status not in (404, 409):
                raise

    @property
    def _handle(self) -> JobHandle:
        return JobHandle(self._gvr, self.object)

    async def _read(self) -> Object:
        self._set(await self._client.get(self._gvr, self.name, self.namespace))
        return self.object

    async def _first_failure(self) -> ContainerFailure | None:
        """The container that failed first. Of pods that their Job has deleted, a plane keeps how they ended."""
        failure = first_failure(await self.pods())
        if failure is not None:
            return failure
        try:
            record = await wait_for_record(self._cluster, self._handle)
        except YardError:  # the history cannot be read; how the job finished is still known
            return None
        recorded = first_failed_replica(record) if record is not None else None
        return recorded[1] if recorded is not None else None

    def _set(self, obj: Object) -> None:
        self.object = {"apiVersion": self._gvr.api_version, "kind": self.kind, **obj}

    async def _printed_rows(self) -> list[dict[str, float]]:
        try:
            return [row async for row in self.metric_rows()]
        except StatusError:  # the replica has not started, or its node has lost the log
            return []

    async def _pod_name(self, replica: str) -> str:
        if self.kind == "Pod":
            return self.name
        if self.kind == names.KIND and not replica:
            specs = self.object["spec"]["pytorchReplicaSpecs"]
            return names.replica_name(self.name, names.MASTER if names.MASTER in specs else names.WORKER, 0)
        if replica and not replica.isdigit():
            return f"{self.name}-{replica}"
        pods = await self.pods()
        if not pods:
            hint = f"`yard why {self.name}` says why"
            raise YardError(f"{self.kind} {self.namespace}/{self.name} has no pods yet", hint=hint, code="NoPods")
        return str(choose_replicas(pods, self.name, (replica,) if replica else ())[0]["metadata"]["name"])

    async def _wait_for_start(self, pod: str) -> None:
        """Wait until a pod runs; an error if the job ends before, because then it may never run."""
        uid = self.object["metadata"]["uid"]

        def has_ended(obj: Object | None) -> bool:
            return obj is None or obj["metadata"]["uid"] != uid or run_state({"kind": self.kind, **obj}).done

        waits = [
            asyncio.ensure_future(self._wait_for(PODS, pod, lambda obj: obj is not None and _has_started(obj))),
            asyncio.ensure_future(self._wait_for(self._gvr, self.name, has_ended)),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        current = await self._client.find(PODS, pod, self.namespace)
        if current is None or not _has_started(current):
            raise YardError(
                f"{pod} had not started when {self.kind} {self.namespace}/{self.name} ended",
                hint=f"`yard why {self.name}` says how the job ended",
                code="NotStarted",
            )

    async def _wait_for(
        self, gvr: GroupVersionResource, name: str, condition: Callable[[Object | None], bool]
    ) -> Object | None:
        """Return the first state of an object for which the condition holds; None stands for a missing object."""
        changed = asyncio.Event()
        informer = Informer(self._client, gvr, namespace=self.namespace, fields=f"metadata.name={name}")
        informer.on_change(lambda *_: changed.set())
        watching = asyncio.ensure_future(informer.run())
        try:
            await informer.synced.wait()
            while not condition(obj := informer.get(self.namespace, name)):
                await changed.wait()
                changed.clear()
            return obj
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def _has_started(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")


def _result_record(message: str) -> dict[str, Any]:
    try:
        record = json.loads(message)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
