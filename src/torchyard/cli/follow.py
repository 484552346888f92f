"""Follows one job until it finishes: its status, its pods, their logs. The decisions are in `core.run`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import EVENTS, PODS
from torchyard.api.objects import Object
from torchyard.api.pod.columns import status_of
from torchyard.api.pod.phases import container_statuses
from torchyard.api.progress import progress_text_of
from torchyard.cli.printable import mask_unprintable
from torchyard.cli.screen import Replica, Screen
from torchyard.core.run.failure import ContainerFailure, first_failure
from torchyard.core.run.image_pull import ImagePull, image_pull, is_creating
from torchyard.core.run.line_splitter import LogLine
from torchyard.core.run.progress import TrainingProgress, parse_progress
from torchyard.core.run.state import RunState, belongs_to, pods_of, run_state, short_name
from torchyard.core.run.waiting import pending_reason, queue_name, queue_reason
from torchyard.jobs.log_stream import cancel, follow_lines
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.job_lookup import find_workload, last_seen
from torchyard.kube.spelling import with_suggestion

# How long to wait for the last log lines of a container that has ended.
LAST_LINES_TIMEOUT = 30.0
QUEUE_POLL_SECONDS = 1.0
PULL_POLL_SECONDS = 2.0
# How long a pod waits for the same reason until it is reported.
REASON_SECONDS = 0.7


class Follower:
    """Shows one job on a screen until it finishes. `among_others`: the screen shows several jobs."""

    def __init__(
        self, client: Client, gvr: GroupVersionResource, obj: Object, screen: Screen, *, among_others: bool = False
    ) -> None:
        self._client, self._screen, self._among_others = client, screen, among_others
        self._name, self._namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        self._uid, self._kind = obj["metadata"]["uid"], obj["kind"]
        self._labels, self._fields = pods_of(obj)
        self._pods = Informer(client, PODS, namespace=self._namespace, labels=self._labels, fields=self._fields)
        self._objects = Informer(client, gvr, namespace=self._namespace, fields=f"metadata.name={self._name}")
        self._changed = asyncio.Event()
        for informer in (self._pods, self._objects):
            informer.on_change(lambda *_: self._changed.set())
        self._pods.on_change(self._keep_failure)
        self._logs: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._progress: dict[str, TrainingProgress] = {}
        self._activity: dict[str, str] = {}
        self._pending_reasons: dict[str, str] = {}
        self._failures: dict[str, ContainerFailure] = {}  # the last of each pod, by its name
        self._notes: list[asyncio.Task[None]] = []
        self._pulls: dict[str, asyncio.Task[None]] = {}  # by the uid of the pod
        self._queue_task: asyncio.Task[None] | None = None

    async def run(self) -> tuple[RunState, ContainerFailure | None]:
        """Return how the object finished and, if it failed, the container that failed first."""
        async with AsyncExitStack() as stack:
            for informer in (self._pods, self._objects):
                stack.push_async_callback(cancel, asyncio.ensure_future(informer.run()))
            for informer in (self._pods, self._objects):
                await informer.synced.wait()
            stack.push_async_callback(self._stop_tasks)
            result = await self._until_done()
            failure = None if result.succeeded else first_failure(self._own_pods()) or self._failure_of_deleted()
            await self._wait_for_last_lines()
            return result, failure

    async def _wait_for_last_lines(self) -> None:
        """Wait for the rest of the logs that have an end. A replica that outlives its job is named, not waited for."""
        # The watch of the pods may be behind that of the job.
        listed = await self._client.list(PODS, self._namespace, labels=self._labels, fields=self._fields)
        pods = [pod for pod in listed.items if belongs_to(pod, self._uid)]
        for pod in pods:
            self._observe(pod)
        running = {pod["metadata"]["uid"] for pod in pods if _runs(pod)}
        ending = [task for (uid, _, _), task in self._logs.items() if uid not in running]
        if ending:
            await asyncio.wait(ending, timeout=LAST_LINES_TIMEOUT)
        for pod in pods:
            name = pod["metadata"]["name"]
            if pod["metadata"]["uid"] in running and not pod["metadata"].get("deletionTimestamp"):
                command = f"kubectl delete -n {self._namespace} pod/{name}"
                self._screen.note(f"{name} is still running; delete it with: {command}")

    async def _until_done(self) -> RunState:
        while True:
            self._changed.clear()
            obj = self._objects.get(self._namespace, self._name)
            if obj is None or obj["metadata"]["uid"] != self._uid:
                raise YardError(f"{self._kind} {self._namespace}/{self._name} was deleted while it ran", code="Gone")
            for pod in self._own_pods():
                self._observe(pod)
            result = run_state({"kind": self._kind, **obj})
            if result.state == "Suspended" and queue_name(obj) and self._queue_task is None:
                self._queue_task = asyncio.ensure_future(self._watch_queue(obj))
            self._show(result, "" if result.done else progress_text_of(obj))
            if result.done:
                return result
            await self._changed.wait()

    def _own_pods(self) -> list[Object]:
        """Return the pods of this object, sorted by name."""
        pods = [pod for pod in self._pods.all() if belongs_to(pod, self._uid)]
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def _observe(self, pod: Object) -> None:
        """Report why a pod is pending when that changes, and start to stream the log of each container that started."""
        name = pod["metadata"]["name"]
        reason = pending_reason(pod)
        if reason != self._pending_reasons.get(name, ""):
            self._pending_reasons[name] = reason
            if reason:
                self._notes.append(asyncio.ensure_future(self._note_waiting(name, reason)))
        uid = pod["metadata"]["uid"]
        if is_creating(pod) and uid not in self._pulls:
            self._pulls[uid] = asyncio.ensure_future(self._watch_pull(name))
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            state = status.get("state") or {}
            key = (uid, status["name"], status.get("restartCount") or 0)
            if ("running" in state or "terminated" in state) and key not in self._logs:
                is_first = pod["spec"]["containers"][0]["name"] == status["name"]
                self._logs[key] = asyncio.ensure_future(self._stream(name, status["name"], is_first=is_first))

    def _keep_failure(self, _change: str, pod: Object, _before: Object | None) -> None:
        if belongs_to(pod, self._uid) and (failure := first_failure([pod])) is not None:
            self._failures[pod["metadata"]["name"]] = failure

    def _failure_of_deleted(self) -> ContainerFailure | None:
        """The first failure of the pods that the job deleted before it failed."""
        return min(self._failures.values(), key=lambda failure: failure.at, default=None)

    async def _note_waiting(self, pod: str, reason: str) -> None:
        """Report a reason that lasts; a node that has just started is none."""
        await asyncio.sleep(REASON_SECONDS)
        if self._pending_reasons.get(pod) == reason:
            self._screen.note(f"{pod} is waiting: {await with_suggestion(self._client, reason, self._namespace)}")

    async def _watch_pull(self, pod: str) -> None:
        """Report an image that takes long to pull, and how large it was."""
        reported: ImagePull | None = None
        while True:
            await asyncio.sleep(PULL_POLL_SECONDS)
            try:
                events = await self._client.list(EVENTS, self._namespace, fields=f"involvedObject.name={pod}")
            except StatusError as error:
                if error.status != 403:
                    raise
                return
            pull = image_pull(sorted(events.items, key=last_seen), pod)
            if pull is not None and pull != reported and (reported is not None or not pull.result):
                self._screen.note(f"{pod}: {pull}")
                reported = pull
            current = self._pods.get(self._namespace, pod)
            if current is None or not is_creating(current):
                return

    async def _watch_queue(self, obj: Object) -> None:
        """Report why the job waits in its queue whenever the reason changes."""
        queue, shown = queue_name(obj), ""
        while True:
            reason = queue_reason(await find_workload(self._client, obj))
            if reason != shown and reason:
                detail = await with_suggestion(self._client, reason, self._namespace)
                self._screen.note(f"{self._name} waits in queue {queue}: {detail}")
            shown = reason
            await asyncio.sleep(QUEUE_POLL_SECONDS)

    async def _stream(self, pod: str, container: str, *, is_first: bool) -> None:
        """Show every line of one container in order."""
        label = self._label(pod) if pod != self._name or self._among_others else ""
        label = label if is_first else f"{label}/{container}"
        try:
            async with aclosing(follow_lines(self._client, pod, self._namespace, container)) as lines:
                async for line in lines:
                    self._line(pod, label, line)
        except StatusError as error:
            if error.status != 404:  # 404: the pod and its log were deleted
                self._screen.note(f"cannot read the log of {pod}: {error.message}")

    def _line(self, pod: str, label: str, line: LogLine) -> None:
        self._screen.log(label, line)
        if line.overwritten:
            self._activity[pod] = line.text
        else:
            self._activity.pop(pod, None)
        parsed = parse_progress(line.text)
        if parsed is not None:
            self._progress[pod] = parsed
        if parsed is not None or line.overwritten:
            self._changed.set()

    def _show(self, result: RunState, progress: str) -> None:
        rows = []
        for pod in self._own_pods():
            name = pod["metadata"]["name"]
            status = status_of(pod)
            rows.append(Replica(self._label(name), status, self._progress.get(name), self._activity.get(name, "")))
        # Metrics are texts of the program: no escape sequence of it reaches the terminal.
        job = self._name if self._among_others else ""
        self._screen.show(result.state, rows, mask_unprintable(progress), job=job)

    def _label(self, pod: str) -> str:
        """The replica of a pod; its whole name if there are replicas of other jobs."""
        return pod if self._among_others else short_name(pod, self._name)

    async def _stop_tasks(self) -> None:
        for task in (
            *self._logs.values(),
            *self._notes,
            *self._pulls.values(),
            *((self._queue_task,) if self._queue_task else ()),
        ):
            await cancel(task)


def _runs(pod: Object) -> bool:
    """Whether a container runs, or one that prepares it: such as that of a worker that waits for its master."""
    return any("running" in (container.get("state") or {}) for container in container_statuses(pod))
