"""CronJobs: lets `core.cronjob` decide about a CronJob and its jobs, and applies the decision."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.errors import StatusError
from torchyard.api.gvr import CRON_JOBS, JOBS
from torchyard.api.job import cron_messages as messages
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.core.cronjob.decide import CronJobDecision, decide, record_start
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, by_owner, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts


class CronJobController:
    """`run` until cancelled."""

    def __init__(
        self, client: Client, informers: InformerFactory, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client, self._clock = client, clock
        self._recorder = EventRecorder(client, messages.CONTROLLER, clock=clock)
        self._crons = informers.for_resource(CRON_JOBS)
        self._jobs = informers.for_resource(JOBS, indexes={"owner": by_owner})
        self._cron_job_cache = MutationCache(self._crons)
        self._job_cache = MutationCache(self._jobs, "owner", by_owner)
        self.controller = Controller(messages.CONTROLLER, self._reconcile, [self._crons, self._jobs])
        self._crons.on_change(lambda _change, cron, _before: self.controller.queue.add(key_of(cron)))
        self._jobs.on_change(self._job_changed)

    async def run(self) -> None:
        await run_parts(recorder=self._recorder.run, controller=self.controller.run)

    def _job_changed(self, _change: str, job: Object, _before: Object | None) -> None:
        for owner in job["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner["kind"] == "CronJob":
                self.controller.queue.add((job["metadata"]["namespace"], owner["name"]))

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._cron_job_cache.get(key)
        if cached is None:
            return None
        cron = {**cached, "apiVersion": CRON_JOBS.api_version, "kind": "CronJob"}
        jobs = self._job_cache.by_index(cron["metadata"]["uid"])
        decision = decide(cron, jobs, self._clock())
        await self._apply(cron, decision)
        return decision.wake_after

    async def _apply(self, cron: Object, decision: CronJobDecision) -> None:
        for reference in decision.replace:
            await self._delete(cron, reference)
        if decision.create is not None and decision.scheduled is not None:
            job = await self._create(cron, decision.create)
            if job is not None:
                record_start(decision.status, job, decision.scheduled)
        if decision.status != (cron.get("status") or {}):
            written = await self._client.update(CRON_JOBS, {**cron, "status": decision.status}, subresource="status")
            self._cron_job_cache.record(written)
        for event in decision.events:
            self._recorder.event(cron, event.kind, event.reason, event.message, once=bool(event.once))
        for job in decision.delete_history:
            await self._delete(cron, job["metadata"])

    async def _create(self, cron: Object, job: Object) -> Object | None:
        """The created job, or the job that was created before a crash. None if another owner has the name."""
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        try:
            created = await self._client.create(JOBS, job)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                existing = await self._client.find(JOBS, name, namespace)
                return existing if existing is not None and cron["metadata"]["uid"] in by_owner(existing) else None
            self._recorder.event(cron, "Warning", messages.NOT_CREATED, messages.not_created(error.message))
            raise
        self._job_cache.record(created)
        self._recorder.event(cron, "Normal", messages.CREATED, messages.created(name))
        return created

    async def _delete(self, cron: Object, reference: Object) -> None:
        try:
            deleted = await self._client.delete(
                JOBS, reference["name"], cron["metadata"]["namespace"], uid=reference["uid"]
            )
        except StatusError as error:
            if error.status in (404, 409):
                return
            self._recorder.event(cron, "Warning", messages.NOT_DELETED, messages.not_deleted(error.message))
            raise
        if (deleted.get("metadata") or {}).get("deletionTimestamp"):
            self._job_cache.record(deleted)
        self._recorder.event(cron, "Normal", messages.DELETED, messages.deleted(reference["name"]))
