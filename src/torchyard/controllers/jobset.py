"""JobSets: lets `core.jobset` decide about a JobSet and its Jobs, and applies the decision.

The same controller runs on the plane and on a cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from itertools import groupby

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import JOBS, PERSISTENT_VOLUME_CLAIMS, SERVICES
from torchyard.api.jobset import messages, names
from torchyard.api.jobset.defaults import with_defaults
from torchyard.api.objects import Object
from torchyard.api.selectors.labels import parse_labels
from torchyard.controllers.child_caches import child_services
from torchyard.controllers.jobset_metrics import JobSetMetrics
from torchyard.controllers.loop import Controller, Observe
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.core.jobset.children import claim_names
from torchyard.core.jobset.decide import JobSetDecision, decide
from torchyard.core.jobset.view import JobSetView, replicated_job_of
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer, Key, by_owner, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

log = logging.getLogger(__name__)

JOBSETS = GroupVersionResource(names.GROUP, names.VERSION, names.PLURAL)
_OWNER = "owner"


class JobSetController:
    """`run` until cancelled."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        selector: str = "",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        workers: int = 8,
        writes: int = 32,
        observe: Observe = lambda _result, _seconds: None,
        trainjobs: GroupVersionResource | None = None,
    ) -> None:
        """`selector` limits the JobSets, `writes` the number of concurrent writes.

        With `trainjobs`, JobSets of selected TrainJobs are selected too: they have the labels of the runtime.
        """
        self._client, self._clock = client, clock
        self.recorder = EventRecorder(client, names.CONTROLLER, clock=clock)
        self.metrics = JobSetMetrics()
        self._selector = parse_labels(selector)
        self._trainjobs: Informer | None = None
        if selector and trainjobs is not None:
            self._trainjobs = informers.for_resource(trainjobs, labels=selector)
        watched = selector if self._trainjobs is None else ""
        self._jobsets = informers.for_resource(JOBSETS, labels=watched)
        self._jobs = informers.for_resource(JOBS, labels=names.JOBSET_NAME, indexes={_OWNER: by_owner})
        self._services = child_services(informers)
        self._claims = informers.for_resource(PERSISTENT_VOLUME_CLAIMS, labels=names.JOBSET_NAME)
        self._jobset_cache = MutationCache(self._jobsets)
        self._job_cache = MutationCache(self._jobs, _OWNER, by_owner)
        self._service_cache = MutationCache(self._services)
        self._claim_cache = MutationCache(self._claims)
        sources = [self._jobsets, self._jobs, self._services, self._claims]
        self.controller = Controller(names.CONTROLLER, self._reconcile, sources, workers=workers, observe=observe)
        if self._trainjobs is not None:
            sources.append(self._trainjobs)
            # A TrainJob that is selected from now on; its JobSet has the same name.
            self._trainjobs.on_change(lambda _change, job, _before: self.controller.queue.add(key_of(job)))
        self._jobsets.on_change(self._jobset_changed)
        for informer in (self._jobs, self._services):
            informer.on_change(self._child_changed)
        self._claims.on_change(self._claim_changed)
        self._write_slots = asyncio.Semaphore(writes)

    async def run(self) -> None:
        """May be called again: work that was cancelled is done again."""
        for jobset in self._jobsets:
            self.controller.queue.add(key_of(jobset))
        await run_parts(recorder=self.recorder.run, controller=self.controller.run)

    def _jobset_changed(self, change: str, jobset: Object, before: Object | None) -> None:
        self.controller.queue.add(key_of(jobset))
        if before is not None and change != "DELETED" and self._is_selected(jobset):
            for ended in messages.TERMINAL:
                if has_true_condition(jobset, ended) and not has_true_condition(before, ended):
                    self.metrics.ended(ended, *key_of(jobset))

    def _child_changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        for reference in obj["metadata"].get("ownerReferences") or ():
            if reference.get("controller") and reference["kind"] == names.KIND:
                self.controller.queue.add((obj["metadata"].get("namespace", ""), reference["name"]))

    def _claim_changed(self, change: str, claim: Object, _before: Object | None) -> None:
        """A claim of an earlier JobSet of the same name may be deleted only now. Retained claims have no owner."""
        if change == "DELETED":
            name = claim["metadata"]["labels"][names.JOBSET_NAME]
            self.controller.queue.add((claim["metadata"]["namespace"], name))

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._jobset_cache.get(key)
        if cached is None or not self._is_selected(cached):
            return None
        jobset = with_defaults(cached)
        jobs = self._job_cache.by_index(jobset["metadata"]["uid"])
        has_service = self._service_cache.get((key[0], names.subdomain(jobset))) is not None
        claims = [name for name in claim_names(jobset) if self._claim_cache.get((key[0], name)) is not None]
        view = JobSetView.of(jobset, self._clock(), jobs, has_service=has_service, claims=claims)
        decision = decide(view)
        await self._apply(jobset, decision)
        return decision.wake_after

    def _is_selected(self, jobset: Object) -> bool:
        metadata = jobset["metadata"]
        if self._trainjobs is None or self._selector.matches(metadata.get("labels")):
            return True
        trainjob = self._trainjobs.get(*key_of(jobset))
        return trainjob is not None and trainjob["metadata"]["uid"] in by_owner(jobset)

    async def _apply(self, jobset: Object, decision: JobSetDecision) -> None:
        await self._all(self._delete_job(job) for job in decision.delete_jobs)
        if decision.service is not None:
            await self._create_service(jobset, decision.service)
        await self._all(self._create_claim(jobset, claim) for claim in decision.claims)
        # As upstream: a replicated job whose Jobs cannot be created holds up those after it.
        for _, jobs in groupby(decision.create_jobs, key=replicated_job_of):
            await self._create_jobs(jobset, list(jobs))
        await self._all(self._update_job(job) for job in decision.suspend)
        await self._all(self._resume_job(job) for job in decision.resume)
        if decision.status is not None:
            updated = {**jobset, "status": decision.status}
            self._jobset_cache.record(await self._client.update(JOBSETS, updated, subresource="status"))
            self._record_events(jobset, decision)
        if decision.delete_jobset:
            metadata = jobset["metadata"]
            await _unless_gone(
                self._client.delete(
                    JOBSETS, metadata["name"], metadata["namespace"], uid=metadata["uid"], propagation="Foreground"
                )
            )

    async def _all(self, writes: Iterable[Awaitable[None]]) -> None:
        """Do all writes, then raise the first error."""

        async def limited(write: Awaitable[None]) -> None:
            async with self._write_slots:
                await write

        results = await asyncio.gather(*(limited(write) for write in writes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _create_service(self, jobset: Object, service: Object) -> None:
        try:
            created = await self._client.create(SERVICES, service)
        except StatusError as error:
            if error.reason == "AlreadyExists":  # the cache is behind
                return
            self._warn(jobset, messages.SERVICE_NOT_CREATED, str(error))
            raise
        self._service_cache.record(created)

    async def _create_claim(self, jobset: Object, claim: Object) -> None:
        """A claim without the label is not in the cache, and a quota would refuse to create it once more."""
        metadata = claim["metadata"]
        if await self._client.find(PERSISTENT_VOLUME_CLAIMS, metadata["name"], metadata["namespace"]):
            return
        try:
            created = await self._client.create(PERSISTENT_VOLUME_CLAIMS, claim)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return
            self._warn(jobset, messages.CLAIM_NOT_CREATED, str(error))
            raise
        self._claim_cache.record(created)

    async def _create_jobs(self, jobset: Object, jobs: list[Object]) -> None:
        errors: list[str] = []
        first: list[StatusError] = []

        async def create(job: Object) -> None:
            try:
                self._job_cache.record(await self._client.create(JOBS, job))
            except StatusError as error:
                if error.reason == "AlreadyExists" and await self._is_own(job):
                    return
                errors.append(messages.job_not_created(job["metadata"]["name"], str(error)))
                first.append(error)

        await self._all(create(job) for job in jobs)
        if first:
            self._warn(jobset, messages.JOB_NOT_CREATED, "\n".join(errors))
            raise first[0]

    async def _is_own(self, job: Object) -> bool:
        """Whether a Job exists because this controller created it, and the cache is behind."""
        metadata = job["metadata"]
        existing = await self._client.find(JOBS, metadata["name"], metadata["namespace"])
        uid = metadata["ownerReferences"][0]["uid"]
        return existing is not None and uid in by_owner(existing) and not existing["metadata"].get("deletionTimestamp")

    async def _delete_job(self, job: Object) -> None:
        metadata = job["metadata"]
        await _unless_gone(
            self._client.delete(
                JOBS, metadata["name"], metadata["namespace"], uid=metadata["uid"], propagation="Foreground"
            )
        )

    async def _update_job(self, job: Object) -> None:
        self._job_cache.record(await self._client.update(JOBS, _typed(job)))

    async def _resume_job(self, job: Object) -> None:
        """The pod template of a Job may change only before it starts, so the start time is removed first."""
        status = job.get("status") or {}
        if status.get("startTime"):
            remaining = {name: value for name, value in status.items() if name != "startTime"}
            current = {**job, "spec": {**job["spec"], "suspend": True}, "status": remaining}
            written = await self._client.update(JOBS, _typed(current), subresource="status")
            job = {**job, "metadata": written["metadata"], "status": remaining}
        await self._update_job(job)

    def _warn(self, jobset: Object, reason: str, message: str) -> None:
        self.recorder.event(_reference(jobset), "Warning", reason, message)

    def _record_events(self, jobset: Object, decision: JobSetDecision) -> None:
        for event in decision.events:
            self.recorder.event(_reference(jobset), event.kind, event.reason, event.message)
            log.info("event recorded: jobset=%s reason=%s", "/".join(key_of(jobset)), event.reason)


def _reference(jobset: Object) -> Object:
    return {**jobset, "apiVersion": names.API_VERSION, "kind": names.KIND}


def _typed(job: Object) -> Object:
    """A list response leaves out the kind."""
    return {**job, "apiVersion": JOBS.api_version, "kind": "Job"}


async def _unless_gone(deletion: Awaitable[Object]) -> None:
    try:
        await deletion
    except StatusError as error:
        if error.status not in (404, 409):  # already gone, or another object has its name
            raise
