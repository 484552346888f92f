"""PyTorchJobs: lets `core.pytorchjob` decide about a job and its children, and applies the decision.

The same controller runs on the plane and on a cluster.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import HORIZONTAL_POD_AUTOSCALERS, PODS, SECRETS, SERVICES
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages, names
from torchyard.controllers.child_caches import child_services, managed_pods
from torchyard.controllers.loop import Controller, Observe
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.core.events import Event
from torchyard.core.pytorchjob.decide import ChildDeletion, PyTorchJobDecision, decide
from torchyard.core.pytorchjob.environment import needs_token
from torchyard.core.pytorchjob.replicas import owner_reference
from torchyard.core.pytorchjob.view import VOLCANO, PyTorchJobSettings, PyTorchJobView
from torchyard.core.training.elastic import make_token_secret
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer, Key, by_owner, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

log = logging.getLogger(__name__)


JOBS = GroupVersionResource(names.GROUP, names.VERSION, names.PLURAL)
VOLCANO_GROUPS = GroupVersionResource("scheduling.volcano.sh", "v1beta1", "podgroups")
PLUGIN_GROUPS = GroupVersionResource("scheduling.x-k8s.io", "v1alpha1", "podgroups")

_OWNER = "owner"
_MAX_RECORDED_ONCE = 8192
_MAX_PENDING_EVENTS = 50_000  # a thousand jobs at once cause twenty thousand
# A name that another owner uses: retried, because no event reports that it is free.
_CONFLICT_RETRY_SECONDS = 2.0
# A pass over a large job is expensive, so its pods' changes are batched: seconds per pod, from this size on.
_PAUSE_PER_POD, _LARGE, _LONGEST_PAUSE = 0.001, 32, 1.0


def pod_group_resource(gang_scheduler: str) -> GroupVersionResource:
    return VOLCANO_GROUPS if gang_scheduler.lower() == VOLCANO else PLUGIN_GROUPS


class _ChildEventReasons(NamedTuple):
    """The event reasons of one kind of child."""

    created: tuple[str, Callable[[str], str]] | None
    not_created: str
    deleted: tuple[str, Callable[[str], str]] | None
    not_deleted: str


_CHILD_EVENTS = {
    "Pod": _ChildEventReasons(
        (messages.POD_CREATED, messages.pod_created), messages.POD_NOT_CREATED,
        (messages.POD_DELETED, messages.pod_deleted), messages.POD_NOT_DELETED,
    ),
    "Service": _ChildEventReasons(
        (messages.SERVICE_CREATED, messages.service_created), messages.SERVICE_NOT_CREATED,
        (messages.SERVICE_DELETED, messages.service_deleted), messages.SERVICE_NOT_DELETED,
    ),
    "PodGroup": _ChildEventReasons(
        None, messages.POD_GROUP_NOT_CREATED,
        (messages.POD_GROUP_DELETED, messages.pod_group_deleted), messages.POD_GROUP_NOT_DELETED,
    ),
    "HorizontalPodAutoscaler": _ChildEventReasons(
        None, messages.AUTOSCALER_NOT_CREATED, None, messages.AUTOSCALER_NOT_DELETED,
    ),
}  # fmt: skip


class PyTorchJobController:
    """`run` until cancelled."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        settings: PyTorchJobSettings,
        *,
        selector: str = "",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        workers: int = 8,
        writes: int = 32,
        observe: Observe = lambda _result, _seconds: None,
    ) -> None:
        """`selector` limits the jobs, `writes` the number of concurrent writes."""
        self._client, self._settings, self._clock = client, settings, clock
        self.recorder = EventRecorder(
            client,
            names.CONTROLLER,
            clock=clock,
            limit=_MAX_PENDING_EVENTS,
            is_busy=lambda: len(self.controller.queue) > 0,
        )
        owner = {_OWNER: by_owner}
        self._jobs = informers.for_resource(JOBS, labels=selector)
        self._pods = managed_pods(informers, indexes=owner)
        self._services = child_services(informers, indexes=owner)
        self._autoscalers = informers.for_resource(HORIZONTAL_POD_AUTOSCALERS, indexes=owner)
        groups = pod_group_resource(settings.gang_scheduler)
        self._groups = informers.for_resource(groups, indexes=owner) if settings.uses_pod_groups else None
        self._children = [
            self._pods,
            self._services,
            self._autoscalers,
            *([] if self._groups is None else [self._groups]),
        ]
        self._refs = {
            "Pod": PODS,
            "Service": SERVICES,
            "HorizontalPodAutoscaler": HORIZONTAL_POD_AUTOSCALERS,
            "PodGroup": groups,
        }
        self.controller = Controller(
            names.CONTROLLER, self._reconcile, [self._jobs, *self._children], workers=workers, observe=observe
        )
        self._jobs.on_change(self._job_changed)
        for informer in self._children:
            informer.on_change(self._child_changed)
        self._job_cache = MutationCache(self._jobs)
        self._child_caches = {
            "Pod": MutationCache(self._pods, _OWNER, by_owner),
            "Service": MutationCache(self._services, _OWNER, by_owner),
        }
        self._recorded: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._write_slots = asyncio.Semaphore(writes)

    async def run(self) -> None:
        """May be called again: work that was cancelled is done again."""
        for job in self._jobs:
            self._enqueue(job)
        await run_parts(recorder=self.recorder.run, controller=self.controller.run)

    def _job_changed(self, _change: str, job: Object, before: Object | None) -> None:
        """The controller's own status updates are not urgent."""
        if before is not None and _without_status(job) == _without_status(before):
            self.controller.queue.add_after(key_of(job), self._enqueue_delay(job["metadata"]["uid"]))
        else:
            self._enqueue(job)

    def _enqueue(self, job: Object) -> None:
        """A job without status has no pods yet, so it goes ahead of jobs that only need a status update."""
        self.controller.queue.add(key_of(job), priority=not job.get("status"))

    def _child_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        if change == "ADDED" and _is_unchanged_since_creation(obj):
            return
        for reference in obj["metadata"].get("ownerReferences") or ():
            if reference.get("controller") and reference["kind"] == names.KIND:
                key = (obj["metadata"].get("namespace", ""), reference["name"])
                self.controller.queue.add_after(key, self._enqueue_delay(reference["uid"]))

    def _enqueue_delay(self, uid: str) -> float:
        pods = self._pods.count(_OWNER, uid)
        return min(pods * _PAUSE_PER_POD, _LONGEST_PAUSE) if pods >= _LARGE else 0

    async def _reconcile(self, key: Key) -> float | None:
        job = self._job_cache.get(key)
        if job is None:
            return None
        view = self._view(job)
        decision = decide(view, self._settings)
        if self._defers_status(key, job, decision):
            decision.status = None
            decision.wake(0)
        written = await self._write_job(job, decision)  # on a conflict nothing was written, and no event is recorded
        try:
            return await self._apply(written, decision)
        finally:
            self._record_events(job, decision.events)

    def _defers_status(self, key: Key, job: Object, decision: PyTorchJobDecision) -> bool:
        """Whether to postpone the first status of a job while jobs without any pods are queued.

        Their pods come first. The next pass writes the status, with what has happened since; only the failure to create
        a pod is reported at once.
        """
        queue = self.controller.queue
        return bool(decision.create) and not job.get("status") and len(queue) > 0 and not queue.has_failed(key)

    def _view(self, job: Object) -> PyTorchJobView:
        uid = job["metadata"]["uid"]
        groups = [] if self._groups is None else _owned(self._groups, "PodGroup", uid)
        autoscalers = _owned(self._autoscalers, "HorizontalPodAutoscaler", uid)
        return PyTorchJobView.of(
            job,
            self._clock(),
            pods=[{**pod, "kind": "Pod"} for pod in self._child_caches["Pod"].by_index(uid)],
            services=[{**service, "kind": "Service"} for service in self._child_caches["Service"].by_index(uid)],
            pod_group=groups[0] if groups else None,
            autoscaler=autoscalers[0] if autoscalers else None,
        )

    async def _apply(self, job: Object, decision: PyTorchJobDecision) -> float | None:
        if needs_token(job) and any(child["kind"] == "Pod" for child in decision.create):
            await self._create_token(job, decision)
        # Events are recorded in this order, so that deletions of a scale-down and creations read as they were decided.
        writes: list[Awaitable[Event | None]] = [self._create(result) for result in decision.create]
        writes += [self._update(result) for result in decision.update]
        writes += [self._annotate(pod, annotations) for pod, annotations in decision.annotate]
        writes += [self._delete(result) for result in decision.delete]
        results = await asyncio.gather(*writes, return_exceptions=True)
        decision.events += [result for result in results if isinstance(result, Event)]
        failed = [result for result in results if isinstance(result, BaseException)]
        for result in failed:
            if isinstance(result, _WriteFailed):
                decision.events.append(result.event)
        if failed:
            raise failed[0].error if isinstance(failed[0], _WriteFailed) else failed[0]
        if decision.delete_job:
            await self._delete_job(job, decision)
        if any(isinstance(result, _NameConflict) for result in results):
            decision.wake(_CONFLICT_RETRY_SECONDS)
        return decision.wake_after

    async def _create_token(self, job: Object, decision: PyTorchJobDecision) -> None:
        """Create the job's token before its pods. One that exists stays; no right to read secrets is needed."""
        try:
            await self._client.create(SECRETS, make_token_secret(job, owner_reference(job), secrets.token_urlsafe(24)))
        except StatusError as error:
            if error.reason != "AlreadyExists":
                decision.events.append(Event("Warning", messages.SECRET_NOT_CREATED, messages.not_created(str(error))))
                raise

    async def _write_job(self, job: Object, decision: PyTorchJobDecision) -> Object:
        metadata = job["metadata"]
        if decision.restarts is not None:
            annotations = {names.RESTARTS: decision.restarts.text()}
            patch = {"metadata": {"annotations": annotations, "resourceVersion": metadata["resourceVersion"]}}
            job = await self._client.patch(JOBS, metadata["name"], patch, metadata["namespace"])
            self._job_cache.record(job)
        if decision.status is not None:
            job = await self._client.update(JOBS, {**job, "status": decision.status}, subresource="status")
            self._job_cache.record(job)
        return job

    async def _create(self, obj: Object) -> Event | None:
        kind, name = obj["kind"], obj["metadata"]["name"]
        reasons = _CHILD_EVENTS[kind]
        async with self._write_slots:
            try:
                created = await self._client.create(self._refs[kind], obj)
            except StatusError as error:
                if error.reason == "AlreadyExists":
                    return await self._resolve_name_conflict(obj, error)
                raise _WriteFailed(
                    Event("Warning", reasons.not_created, messages.not_created(str(error))), error
                ) from error
        if kind in self._child_caches:
            self._child_caches[kind].record(created)
        return Event("Normal", reasons.created[0], reasons.created[1](name)) if reasons.created else None

    async def _resolve_name_conflict(self, obj: Object, error: StatusError) -> Event | None:
        """The name is in use: by this job, if the cache is behind; by an earlier job of the same name, whose objects
        will be deleted; or by another owner, and then an event says so.
        """
        metadata, kind = obj["metadata"], obj["kind"]
        existing = await self._client.find(self._refs[kind], metadata["name"], metadata["namespace"])
        owners = ((existing or {}).get("metadata") or {}).get("ownerReferences") or ()
        own_reference = metadata["ownerReferences"][0]
        if existing is None or any(
            (owner["kind"], owner["name"]) == (own_reference["kind"], own_reference["name"]) for owner in owners
        ):
            is_mine = any(owner["uid"] == own_reference["uid"] for owner in owners)
            return None if is_mine else _NameConflict("Normal", "", "")
        text = messages.not_created(str(error))
        return _NameConflict(
            "Warning", _CHILD_EVENTS[kind].not_created, text, (own_reference["uid"], kind, metadata["name"])
        )

    async def _update(self, obj: Object) -> None:
        async with self._write_slots:
            await self._client.update(self._refs[obj["kind"]], obj)

    async def _annotate(self, pod: Object, annotations: dict[str, str]) -> None:
        metadata = pod["metadata"]
        async with self._write_slots:
            patch = {"metadata": {"annotations": annotations, "uid": metadata["uid"]}}
            await self._client.patch(PODS, metadata["name"], patch, metadata["namespace"])

    async def _delete(self, deletion: ChildDeletion) -> Event | None:
        obj = deletion.object
        kind, metadata = obj["kind"], obj["metadata"]
        reasons = _CHILD_EVENTS[kind]
        async with self._write_slots:
            try:
                grace = 0 if deletion.force else None
                await self._client.delete(
                    self._refs[kind], metadata["name"], metadata["namespace"], uid=metadata["uid"], grace=grace
                )
            except StatusError as error:
                if error.status in (404, 409):  # already gone, or another object has its name
                    return None
                raise _WriteFailed(
                    Event("Warning", reasons.not_deleted, messages.not_deleted(str(error))), error
                ) from error
        return Event("Normal", reasons.deleted[0], reasons.deleted[1](metadata["name"])) if reasons.deleted else None

    async def _delete_job(self, job: Object, decision: PyTorchJobDecision) -> None:
        metadata = job["metadata"]
        try:
            await self._client.delete(JOBS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        except StatusError as error:
            if error.status not in (404, 409):
                raise
        else:
            decision.events.append(Event("Normal", messages.POD_DELETED, messages.job_deleted(metadata["name"])))

    def _record_events(self, job: Object, events: Iterable[Event]) -> None:
        reference = {**job, "apiVersion": names.API_VERSION, "kind": names.KIND}
        recorded: list[str] = []
        for event in events:
            if not event.reason or (event.once and event.once in self._recorded):
                continue
            if event.once:
                self._recorded[event.once] = None
                while len(self._recorded) > _MAX_RECORDED_ONCE:
                    self._recorded.popitem(last=False)
            recorded.append(f"{event.reason}: {event.message}")
            self.recorder.event(reference, event.kind, event.reason, event.message, once=bool(event.once))
        if recorded:  # one line: a new job has a dozen events
            log.info("events recorded: job=%s events=%r", "/".join(key_of(job)), "; ".join(recorded))


class _NameConflict(Event):
    """The name of a child is still in use."""


class _WriteFailed(Exception):
    """A write that failed, with the event to record."""

    def __init__(self, event: Event, error: StatusError) -> None:
        super().__init__(str(error))
        self.event, self.error = event, error


def _owned(informer: Informer, kind: str, uid: str) -> list[Object]:
    """A job's children of one kind. A list response leaves out the kind, so it is added."""
    return [{**obj, "kind": kind} for obj in informer.by(_OWNER, uid)]


def _is_unchanged_since_creation(obj: Object) -> bool:
    """Whether a child is as it was created: then the response to its creation contained the same."""
    status = obj.get("status") or {}
    is_new = status.get("phase", "Pending") == "Pending" and status.keys() <= {"phase", "qosClass", "loadBalancer"}
    return is_new and not is_terminating(obj)


def _without_status(job: Object) -> Object:
    """The part of a job that changes when anything but its status does."""
    return {name: value for name, value in job["metadata"].items() if name != "resourceVersion"}
