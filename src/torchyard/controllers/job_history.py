"""Records every job when it ends or is deleted, so that `yard history` knows it afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import PODS
from torchyard.api.jobset.names import JOBSET_NAME
from torchyard.api.objects import Object
from torchyard.core.run.record import DeletedReplicas, ReplicaRecord, RunRecord, build_record, replica_record
from torchyard.core.run.state import has_controller, run_state
from torchyard.kube.informer import by_owner
from torchyard.kube.informer_factory import InformerFactory

log = logging.getLogger(__name__)

_PRUNE_SECONDS = 3600.0
# The Jobs of a JobSet own its pods; a TrainJob has the JobSet of its name.
_WITH_JOBS = ("JobSet", "TrainJob")


class RunStore(Protocol):
    """Where records are kept."""

    def uids(self) -> set[str]:
        """The uids of the recorded jobs."""

    def write(self, records: list[RunRecord], replicas: list[tuple[str, ReplicaRecord]]) -> None:
        """Keep records, each in place of an earlier one of its job, and how replicas of recorded jobs (uid) ended."""

    def prune(self, before: datetime) -> None:
        """Remove everything that ended earlier."""

    def close(self) -> None:
        """End what `write` keeps open."""


class JobHistoryController:
    """`run` until cancelled."""

    def __init__(
        self,
        informers: InformerFactory,
        kinds: dict[str, GroupVersionResource],
        store: RunStore,
        *,
        keep: timedelta,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store, self._keep, self._clock = store, keep, clock
        self._recorded = _recorded(store)
        self._records: list[RunRecord] = []
        self._replicas: list[tuple[str, ReplicaRecord]] = []
        self._changed = asyncio.Event()
        self._sets: dict[str, Object] = {}  # the recorded jobs that have Jobs, by namespace/name: the newest of a name
        self._deleted: dict[str, DeletedReplicas] = {}  # of jobs that have not ended, by uid or namespace/name
        self._successors: dict[str, Object] = {}  # jobs of the same names that have not ended
        self._pods = informers.for_resource(PODS, indexes={"owner": by_owner, "jobset": _by_jobset})
        self._pods.on_change(self._pod_changed)
        self._jobs = {kind: informers.for_resource(gvr) for kind, gvr in kinds.items()}
        for kind, jobs in self._jobs.items():
            jobs.on_change(partial(self._job_changed, kind))

    async def run(self) -> None:
        """Write what the informers report, and remove what is too old."""
        try:
            await self._run()
        finally:
            self._store.close()

    async def _run(self) -> None:
        next_prune = self._clock()
        while True:
            if self._clock() >= next_prune:
                await asyncio.to_thread(self._store.prune, self._clock() - self._keep)
                stored = await asyncio.to_thread(self._store.uids)
                self._recorded = stored | {record["uid"] for record in self._records}
                self._sets = {key: job for key, job in self._sets.items() if job["metadata"]["uid"] in self._recorded}
                self._successors = {key: job for key, job in self._successors.items() if key in self._sets}
                next_prune = self._clock() + timedelta(seconds=_PRUNE_SECONDS)
            try:
                async with asyncio.timeout(_PRUNE_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue
            self._changed.clear()
            await self._write()

    async def _write(self) -> None:
        records, replicas = len(self._records), len(self._replicas)
        try:
            await asyncio.to_thread(self._store.write, self._records[:records], self._replicas[:replicas])
        except BaseException:
            self._changed.set()  # such as a full disk: all of them are written when this part runs again
            raise
        del self._records[:records], self._replicas[:replicas]

    def _job_changed(self, kind: str, change: str, job: Object, _before: Object | None) -> None:
        uid, is_gone = job["metadata"]["uid"], change == "DELETED"
        if has_controller(job):
            if is_gone:
                self._deleted.pop(uid, None)
            return
        obj = {"kind": kind, **job}
        if is_gone or (uid not in self._recorded and run_state(obj).done):
            self._recorded.add(uid)
            record = build_record(obj, self._pods_of(obj), self._clock(), deleted=is_gone)
            deleted = self._deleted.pop(_key(job) if kind in _WITH_JOBS else uid, None)
            self._records.append(deleted.add_to(record) if deleted else record)
            self._changed.set()
        if kind not in _WITH_JOBS:
            return
        if uid in self._recorded:  # after a restart, also one that was recorded before
            self._sets[_key(job)] = job
            self._successors.pop(_key(job), None)
        elif _key(job) in self._sets:
            self._successors[_key(job)] = job

    def _pods_of(self, job: Object) -> list[Object]:
        if job["kind"] not in _WITH_JOBS:
            return self._pods.by("owner", job["metadata"]["uid"])
        return [pod for pod in self._pods.by("jobset", _key(job)) if _is_of(pod, job)]

    def _pod_changed(self, change: str, pod: Object, before: Object | None) -> None:
        if not has_controller(pod):
            self._pod_of_its_own_changed(change, pod)
            return
        if change != "DELETED" and not _has_just_ended(pod, before):
            return
        owners = [(owner["uid"], owner["name"]) for owner in pod["metadata"]["ownerReferences"]]
        for key in _by_jobset(pod):
            job, successor = self._sets.get(key), self._successors.get(key)
            if job and _is_of(pod, job) and not (successor and _is_of(pod, successor)):
                owners.append((job["metadata"]["uid"], job["metadata"]["name"]))
        recorded = [(uid, name) for uid, name in owners if uid in self._recorded]
        for uid, name in recorded:
            self._replicas.append((uid, replica_record(pod, name, self._clock())))
            self._changed.set()
        if change == "DELETED" and not recorded:
            self._keep_deleted(pod)

    def _keep_deleted(self, pod: Object) -> None:
        """Keep how a replica ended whose job has not: a Job deletes its pods before it fails."""
        namespace = pod["metadata"]["namespace"]
        owner = next(owner for owner in pod["metadata"]["ownerReferences"] if owner.get("controller"))
        key = next(iter(_by_jobset(pod)), "")
        name = key.partition("/")[2] or owner["name"]
        kinds = _WITH_JOBS if key else (owner.get("kind"),)
        jobs = [informer.get(namespace, name) for kind, informer in self._jobs.items() if kind in kinds]
        # No other job is recorded: what is kept of one that a CronJob owns, or that is deleted already, would stay.
        if any(job is not None and not has_controller(job) and _is_of(pod, job) for job in jobs):
            self._deleted.setdefault(key or owner["uid"], DeletedReplicas()).add(pod, name, self._clock())

    def _pod_of_its_own_changed(self, change: str, pod: Object) -> None:
        uid, obj = pod["metadata"]["uid"], {"kind": "Pod", **pod}
        is_gone = change == "DELETED"
        if is_gone or (uid not in self._recorded and run_state(obj).done):
            self._recorded.add(uid)
            self._records.append(build_record(obj, [pod], self._clock(), deleted=is_gone))
            self._changed.set()


def _recorded(store: RunStore) -> set[str]:
    """The uids of the recorded jobs; none while they cannot be read, which is then the failure of `run`."""
    try:
        return store.uids()
    except Exception as error:
        log.warning("history not read: error=%r", str(error))
        return set()


def _key(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _by_jobset(pod: Object) -> list[str]:
    """Index by the name of the JobSet."""
    name = (pod["metadata"].get("labels") or {}).get(JOBSET_NAME)
    return [f"{pod['metadata']['namespace']}/{name}"] if name else []


def _is_of(pod: Object, job: Object) -> bool:
    """Whether a pod is of this job, and not of an earlier one of its name."""
    return bool(pod["metadata"]["creationTimestamp"] >= job["metadata"]["creationTimestamp"])


def _has_just_ended(pod: Object, before: Object | None) -> bool:
    ended = ("Succeeded", "Failed")
    was = ((before or {}).get("status") or {}).get("phase")
    return (pod.get("status") or {}).get("phase") in ended and was not in ended
