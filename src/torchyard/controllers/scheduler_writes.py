"""What the scheduler writes: bindings, the choice of volumes, and why pods are pending."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.api.times import to_rfc3339
from torchyard.core.scheduling.node_info import NodeInfo
from torchyard.core.scheduling.queue import SchedulingQueue
from torchyard.core.volume.scheduling import VolumeBinding
from torchyard.core.volume.view import CLAIM
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder

log = logging.getLogger(__name__)

_CONCURRENT_WRITES = 64
_CONCURRENT_REPORTS = 8
# So many waiting pods are looked at before other tasks of the event loop run; most have their answer after a restart.
_MAX_LOOKED_AT = 200
_REPORT_RETRY_SECONDS = 1.0
# After each group of reports a pause, so that they take about a tenth of the time of a loop that has other work.
_REPORT_PAUSE, _BUSY_FACTOR, _MAX_REPORT_PAUSE = 0.005, 9.0, 0.5
# The loop has other work if a timer was late by so many seconds after one of the last reports.
_IDLE_DELAY, _DELAYS = 0.003, 8


class BindingOutcome(enum.Enum):
    BOUND = enum.auto()
    WAITS_FOR_VOLUMES = enum.auto()
    FAILED = enum.auto()


BindingEnded = Callable[[Object, NodeInfo, BindingOutcome], None]


class SchedulerWrites:
    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        volume_binding: VolumeBinding,
        queue: SchedulingQueue,
        clock: Callable[[], datetime],
    ) -> None:
        self._client, self._recorder, self._clock = client, recorder, clock
        self._volume_binding, self._queue = volume_binding, queue
        self._tasks: set[asyncio.Task[None]] = set()
        self._slot_freed = asyncio.Event()
        self._has_reports = asyncio.Event()
        self._delays: deque[float] = deque(maxlen=_DELAYS)  # of the event loop, after the last reports

    # Bindings

    def bind(self, pod: Object, node: NodeInfo, ended: BindingEnded) -> None:
        """Bind a pod in the background; `ended` is called with the outcome."""
        task = asyncio.get_running_loop().create_task(self._bind(pod, node, ended))
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slot_freed.set()

    async def wait_for_slot(self) -> None:
        """Wait while many bindings are being written."""
        while len(self._tasks) >= _CONCURRENT_WRITES:
            self._slot_freed.clear()
            await self._slot_freed.wait()

    async def _bind(self, pod: Object, node: NodeInfo, ended: BindingEnded) -> None:
        outcome = BindingOutcome.FAILED
        try:
            if await self._pre_bind_volumes(pod, node):
                outcome = BindingOutcome.WAITS_FOR_VOLUMES
            else:
                await self._create_binding(pod, node.name)
                outcome = BindingOutcome.BOUND
        except StatusError as error:
            expected = error.status in (404, 409)  # the pod is gone, or was bound by another
            log.log(logging.DEBUG if expected else logging.WARNING, _NOT_BOUND, *_name(pod), node.name, error)
        except YardError as error:
            log.warning(_NOT_BOUND, *_name(pod), node.name, error)
        except Exception:
            log.exception(_NOT_BOUND, *_name(pod), node.name, "unexpected exception")
        finally:
            ended(pod, node, outcome)

    async def _pre_bind_volumes(self, pod: Object, node: NodeInfo) -> bool:
        """Whether the pod waits for volumes on its node; it is bound once they are."""
        writes = self._volume_binding.pre_bind_writes(pod, node)
        for write in writes:
            try:
                await self._client.update(
                    PERSISTENT_VOLUME_CLAIMS if write.kind == CLAIM else PERSISTENT_VOLUMES, write.object
                )
            except StatusError as error:
                if error.status not in (404, 409):  # a conflict: the watch delivers the newer object
                    raise
        return bool(writes)

    async def _create_binding(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        namespace, name = _name(pod)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._client.create(PODS, binding, namespace, name=name, subresource="binding")
        self._recorder.event(_subject(pod), "Normal", messages.SCHEDULED, messages.assigned(namespace, name, node))

    # Reports

    def report(self) -> None:
        """There are answers that pods do not have yet."""
        self._has_reports.set()

    async def run_reports(self) -> None:
        """Write into pending pods why they are pending, when the reason changes."""
        loop = asyncio.get_running_loop()
        while True:
            reports, is_done = self._next_reports()
            if reports:
                start = loop.time()
                await asyncio.gather(*(self._write_report(pod, message) for pod, message in reports))
                await self._give_way(loop.time() - start)
            elif is_done:
                await self._has_reports.wait()
                self._has_reports.clear()
            else:
                await asyncio.sleep(0)

    def _next_reports(self) -> tuple[list[tuple[Object, str]], bool]:
        """Some pods that do not have their answer, with the answer, and whether there are no more."""
        reports: list[tuple[Object, str]] = []
        for _ in range(_MAX_LOOKED_AT):
            report = self._queue.next_report()
            if report is None:
                return reports, True
            if not has_answer(*report):
                reports.append(report)
                if len(reports) == _CONCURRENT_REPORTS:
                    break
        return reports, False

    async def _give_way(self, spent: float) -> None:
        """Pause, and for longer while the loop is busy: nothing waits for a report, but clients wait for responses.

        kube-scheduler has a limit of 50 requests per second instead.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.sleep(_REPORT_PAUSE)
        self._delays.append(loop.time() - start - _REPORT_PAUSE)
        pause = report_pause(max(self._delays), spent)
        if pause:
            await asyncio.sleep(pause)

    async def _write_report(self, pod: Object, message: str) -> None:
        try:
            await self._mark_unschedulable(pod, message)
        except BaseException as error:
            asyncio.get_running_loop().call_later(_REPORT_RETRY_SECONDS, self._report_again, pod["metadata"]["uid"])
            if not isinstance(error, Exception):
                raise
            namespace, name = _name(pod)
            log.warning(
                "reason for pending pod not written: pod=%s/%s retry_seconds=%g error=%s",
                namespace,
                name,
                _REPORT_RETRY_SECONDS,
                error,
                exc_info=not isinstance(error, YardError),
            )

    def _report_again(self, uid: str) -> None:
        self._queue.report_again(uid)
        self.report()

    async def _mark_unschedulable(self, pod: Object, message: str) -> None:
        metadata = pod["metadata"]
        conditions = [condition for condition in _conditions(pod) if condition["type"] != "PodScheduled"]
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": messages.UNSCHEDULABLE,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": to_rfc3339(self._clock()),
        }
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [*conditions, condition]}}
        try:
            await self._client.patch(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")
        except StatusError as error:
            if error.status not in (404, 409):
                raise
            return
        self._recorder.event(_subject(pod), "Warning", messages.FAILED_SCHEDULING, message)


def report_pause(delay: float, spent: float) -> float:
    """How long reports pause that took `spent` seconds, when a timer of the loop was late by `delay` seconds."""
    return min(spent * _BUSY_FACTOR, _MAX_REPORT_PAUSE) if delay > _IDLE_DELAY else 0.0


def has_answer(pod: Object, message: str) -> bool:
    """Whether this process, or an earlier one, has written the reason into the pod."""
    return any(
        condition["type"] == "PodScheduled" and condition.get("message") == message for condition in _conditions(pod)
    )


_NOT_BOUND = "pod not bound: pod=%s/%s node=%s error=%s"


def _name(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _subject(pod: Object) -> Object:
    """What an event refers to."""
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _conditions(pod: Object) -> list[Object]:
    return (pod.get("status") or {}).get("conditions") or []
