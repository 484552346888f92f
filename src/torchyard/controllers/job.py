"""Jobs: lets `core.job` decide about a job and its pods, and applies the decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from torchyard.api.gvr import JOBS, PODS
from torchyard.api.job import labels, messages
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended, phase
from torchyard.controllers.job_pods import JobPodWriter
from torchyard.controllers.loop import Controller
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.controllers.orphans import orphan_keys, selector_key
from torchyard.core.job.adoption import match_pods, selector
from torchyard.core.job.backoff import NO_FAILURES, Backoff
from torchyard.core.job.decide import JobDecision, decide, is_managed_here
from torchyard.core.job.status import with_fewer_active
from torchyard.core.job.view import JobView, is_tracked
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, by_owner
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts


class JobController:
    """`run` until cancelled."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        workers: int = 8,
    ) -> None:
        self._client, self._clock = client, clock
        self._recorder = EventRecorder(client, messages.CONTROLLER, clock=clock)
        self._jobs = informers.for_resource(JOBS, indexes={"selector": _selector_key})
        self._pods = informers.for_resource(PODS, indexes={"owner": by_owner, "orphans": orphan_keys})
        self._job_cache = MutationCache(self._jobs)
        self._pod_cache = MutationCache(self._pods, "owner", by_owner)
        self._writer = JobPodWriter(client, self._recorder, self._pod_cache)
        self._backoffs: dict[str, Backoff] = {}
        sources = [self._jobs, self._pods]
        self._controller = Controller(messages.CONTROLLER, self._reconcile, sources, workers=workers)
        self._stray_pods = Controller("job-controller strays", self._release_stray, sources)
        self._jobs.on_change(self._job_changed)
        self._pods.on_change(self._pod_changed)

    async def run(self) -> None:
        await run_parts(recorder=self._recorder.run, controller=self._controller.run, stray_pods=self._stray_pods.run)

    def _job_changed(self, change: str, job: Object, _before: Object | None) -> None:
        metadata = job["metadata"]
        self._controller.queue.add((metadata["namespace"], metadata["name"]))
        if change == "DELETED":
            self._backoffs.pop(metadata["uid"], None)
            for pod in self._pods.by("owner", metadata["uid"]):
                self._stray_pods.queue.add((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def _pod_changed(self, change: str, pod: Object, before: Object | None) -> None:
        namespace = pod["metadata"]["namespace"]
        owners = {_owner(state) for state in (pod, before) if state is not None} - {None}
        for _, name in filter(None, owners):
            self._controller.queue.add((namespace, name))
        if not owners:
            for job in self._selecting_jobs(pod):
                self._controller.queue.add((namespace, job["metadata"]["name"]))
        if change != "DELETED" and is_tracked(pod) and self._owning_job(pod) is None:
            self._stray_pods.queue.add((namespace, pod["metadata"]["name"]))

    def _selecting_jobs(self, pod: Object) -> Iterator[Object]:
        """The jobs whose selector matches a pod without a controller, found by the pod's labels."""
        for key in orphan_keys(pod):
            for job in self._jobs.by("selector", key):
                if selector(job)(pod):
                    yield job

    def _owning_job(self, pod: Object) -> Object | None:
        owner = _owner(pod)
        job = self._jobs.get(pod["metadata"]["namespace"], owner[1]) if owner else None
        return job if job is not None and owner and job["metadata"]["uid"] == owner[0] else None

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._job_cache.get(key)
        if cached is None or not is_managed_here(cached):
            return None
        job = {**cached, "apiVersion": JOBS.api_version, "kind": "Job"}
        pods = await self._claimed(job)
        view = JobView(job, self._clock(), tuple(pods), self._backoff(job, pods))
        return await self._apply(view, decide(view))

    async def _claimed(self, job: Object) -> list[Object]:
        metadata = job["metadata"]
        (key,) = _selector_key(job)
        orphans = self._pods.by("orphans", key)
        claimed = match_pods(job, self._pod_cache.by_index(metadata["uid"]), orphans)
        await self._writer.disown(job, claimed.disown)
        return claimed.owned + await self._writer.adopt(job, claimed.adopt)

    def _backoff(self, job: Object, pods: list[Object]) -> Backoff:
        """The recorded failures; after a restart of the controller, those that the pods still show."""
        backoff = self._backoffs.get(job["metadata"]["uid"])
        if backoff is not None:
            return backoff
        counted = [pod for pod in pods if has_ended(pod) and not is_tracked(pod)]
        succeeded = [pod for pod in counted if phase(pod) == "Succeeded"]
        return NO_FAILURES.after(succeeded, [pod for pod in counted if phase(pod) == "Failed"])

    async def _apply(self, view: JobView, decision: JobDecision) -> float | None:
        job = view.job
        await self._writer.delete(job, decision.delete)
        result = await self._writer.create(job, decision.create)
        status = decision.status
        if result.missing:
            status = with_fewer_active(view.status if status is None else status, result.missing)
        if status is not None and status != view.status:
            written = await self._client.update(JOBS, {**job, "status": status}, subresource="status")
            self._job_cache.record(written)
        self._backoffs[job["metadata"]["uid"]] = decision.backoff
        for event in decision.events:
            self._recorder.event(job, event.kind, event.reason, event.message)
        await self._writer.release(decision.release)
        if result.error is not None:
            raise result.error
        return decision.wake_after

    async def _release_stray(self, key: Key) -> None:
        """Remove the finalizer of a pod whose job is gone. Asks the server, because the cache may be behind."""
        pod = self._pods.get(*key)
        if pod is None or not is_tracked(pod) or self._owning_job(pod) is not None:
            return
        owner = _owner(pod)
        if owner is not None:
            job = await self._client.find(JOBS, owner[1], key[0])
            if job is not None and job["metadata"]["uid"] == owner[0]:
                return
        elif by_owner(pod) or any(self._selecting_jobs(pod)):
            return
        await self._writer.release([pod])


def _owner(pod: Object) -> tuple[str, str] | None:
    """The uid and name of the Job that controls a pod."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == "Job" and owner["apiVersion"] == JOBS.api_version:
            return owner["uid"], owner["name"]
    return None


def _selector_key(job: Object) -> list[str]:
    """One label that a job's pods must have; the job's own uid if it is one of them."""
    required = (job["spec"].get("selector") or {}).get("matchLabels") or {}
    own = {labels.CONTROLLER_UID: required[labels.CONTROLLER_UID]} if labels.CONTROLLER_UID in required else required
    return [selector_key(job["metadata"]["namespace"], own)]
