"""The book of queues, kept up to date by informers, and the workloads that are being written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from torchyard.api.errors import StatusError
from torchyard.api.gvr import NAMESPACES
from torchyard.api.merge_patch import merge_patch
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.controllers.queue.refs import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    WORKLOADS,
)
from torchyard.core.queue.state import Book
from torchyard.core.queue.workload_info import Key, revision_of
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.transform import strip_managed_fields

_EVENTS = 50_000  # of a moment with very many workloads
_CALM = 0.2  # seconds after a write until there is time for something else: between two of many is none
SOON = 0.05  # seconds until a workload that is being written is looked at again


class Turn:
    """One of the writes to a workload, which follow each other as they were decided."""

    __slots__ = ("after", "before", "key")

    def __init__(self, key: Key, before: Turn | None) -> None:
        self.key = key
        self.after: asyncio.Future[Object | None] | None = None  # told what was written; few are followed by another
        self.before: asyncio.Future[Object | None] | None = None
        if before is not None:
            self.before = before.after = asyncio.get_running_loop().create_future()


class Workloads:
    """Workloads and flavors, all that jobs need: what is known of them, and which are being written."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        one_by_one: bool = False,
    ) -> None:
        self.client, self.clock = client, clock
        self.book = Book(self._labels_of, one_by_one=one_by_one)
        # texts that many share are few but in those that ended, and those the book shares by itself
        self.workloads = informers.for_resource(WORKLOADS, indexes={"job": _job_of}, transform=strip_managed_fields)
        flavors = informers.for_resource(FLAVORS)
        self.informers: list[Informer] = [flavors, self.workloads]
        self._calm_at = 0.0
        self._turns: dict[Key, Turn] = {}  # of those that are being written: the last
        self._listeners: list[Callable[[], None]] = []
        self.workloads.on_change(self._workload_changed)
        flavors.on_change(self._follow(self.book.put_flavor, names.FLAVOR.kind))

    def _labels_of(self, _namespace: str) -> Mapping[str, str] | None:
        return None

    def on_change(self, listener: Callable[[], None]) -> None:
        """Called whenever there may be something to decide."""
        self._listeners.append(listener)

    def now(self) -> float:
        return self.clock().timestamp()

    def changed(self) -> None:
        for listener in self._listeners:
            listener()

    def turn(self, key: Key) -> Turn:
        """Before the next write to a workload, from the moment it is decided: until then others' news do not count."""
        turn = self._turns[key] = Turn(key, self._turns.get(key))
        self._calm_at = time.monotonic() + _CALM
        return turn

    async def write(self, key: Key, obj: Object, status: Object) -> Object | None:
        """Write a workload's status as decided for `obj`; None if somebody else was faster, and the book is right."""
        if key in self._turns:
            return None
        return await self.write_next(self.turn(key), obj, lambda _: status)

    async def write_next(self, turn: Turn, obj: Object, change: Callable[[Object], Object]) -> Object | None:
        """Write the status that `change` makes of a workload, upon what the turn before has written.

        `obj` is what is known where there was none. Until the last turn is over the book keeps what was assumed.
        """
        known, written = obj, None
        try:
            before = obj if turn.before is None else await turn.before
            if before is not None:
                known = before
                written = known = await self._patch_status(known, change(known))
        except StatusError as error:
            if error.status not in (404, 409):
                raise
        finally:
            if turn.after is None:
                del self._turns[turn.key]
                self._settle(turn.key, known)
            elif not turn.after.cancelled():
                turn.after.set_result(written)
        return written

    async def _patch_status(self, obj: Object, status: Object) -> Object:
        """Write what differs, unless somebody else has written: the rest, templates and all, need not travel."""
        metadata = obj["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": merge_patch(obj.get("status") or {}, status),
        }
        return await self.client.patch(WORKLOADS, metadata["name"], patch, metadata["namespace"], subresource="status")

    def is_busy(self) -> bool:
        """Whether somebody is being admitted, or was just now: what is only told about it gives way."""
        return bool(self._turns or self.book.awake) or time.monotonic() < self._calm_at

    def is_writing(self, key: Key) -> bool:
        return key in self._turns

    def reread(self, key: Key) -> None:
        """Forget what was assumed of a workload."""
        item = self.book.items.get(key)
        if item is not None and key not in self._turns:
            self._settle(key, item.obj)

    def _settle(self, key: Key, known: Object) -> None:
        """Take into the book what is true: what is known, or what the watch brought meanwhile."""
        seen = self.workloads.get(*key)
        if seen is None:
            self.book.remove(key)
        else:
            self.book.put(max(known, seen, key=revision_of), again=True)
        self.changed()

    def recorder(self, component: str) -> EventRecorder:
        return EventRecorder(self.client, component, clock=self.clock, limit=_EVENTS, is_busy=self.is_busy)

    async def let_go(self, workload: Object) -> None:
        """Nothing of it runs any more: nobody need wait for us to delete it."""
        metadata = workload["metadata"]
        finalizers = metadata.get("finalizers") or []
        if names.IN_USE not in finalizers:
            return
        kept = [one for one in finalizers if one != names.IN_USE]
        pinned = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        patch = {"metadata": {**pinned, "finalizers": kept}}
        try:
            await self.client.patch(WORKLOADS, metadata["name"], patch, metadata["namespace"])
        except StatusError as error:
            if error.status != 404:
                raise

    def of_job(self, kind: str, key: Key) -> list[Object]:
        """The workloads of jobs of this name, those of its earlier lives too."""
        found = self.workloads.by("job", "/".join((kind, *key)))
        return [self.current(key_of(one)) or one for one in found]

    def current(self, key: Key) -> Object | None:
        """The newest that is known of a workload: of what was written, and of what the watch brought meanwhile."""
        item, seen = self.book.items.get(key), self.workloads.get(*key)
        if item is None:
            return None
        return seen if seen is not None and revision_of(seen) > item.revision else item.obj

    def _workload_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        metadata = obj["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if change == "DELETED":
            self.book.remove(key)
        elif key in self._turns or self.book.items.get(key) is self.book.put(obj):
            return
        self.changed()

    def _follow(
        self, put: Callable[[Object], None], kind: str, *, namespaced: bool = False
    ) -> Callable[[str, Object, Object | None], None]:
        def follow(change: str, obj: Object, _before: Object | None) -> None:
            metadata = obj["metadata"]
            if change == "DELETED":
                self.book.drop(kind, (metadata["namespace"], metadata["name"]) if namespaced else metadata["name"])
            else:
                put(obj)
            self.changed()

        return follow


class State(Workloads):
    """With the queues: shared by everything that admits in this process."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        one_by_one: bool = False,
    ) -> None:
        """`one_by_one`: see `Book`."""
        super().__init__(client, informers, clock, one_by_one=one_by_one)
        self.namespaces = informers.for_resource(NAMESPACES)
        self.local_queues = informers.for_resource(LOCAL_QUEUES)
        self.cluster_queues = informers.for_resource(CLUSTER_QUEUES)
        cohorts, checks = informers.for_resource(COHORTS), informers.for_resource(CHECKS)
        self.informers = [self.namespaces, cohorts, checks, self.cluster_queues, self.local_queues, *self.informers]
        self.namespaces.on_change(self._namespace_changed)
        cohorts.on_change(self._follow(self.book.put_cohort, names.COHORT.kind))
        checks.on_change(self._follow(self.book.put_check, names.CHECK.kind))
        self.cluster_queues.on_change(self._follow(self.book.put_queue, names.CLUSTER_QUEUE.kind))
        self.local_queues.on_change(self._follow(self.book.put_local, names.LOCAL_QUEUE.kind, namespaced=True))

    def _labels_of(self, namespace: str) -> Mapping[str, str] | None:
        found = self.namespaces.get("", namespace)
        return (found["metadata"].get("labels") or {}) if found is not None else None

    def _namespace_changed(self, _change: str, obj: Object, before: Object | None) -> None:
        if before is None or before["metadata"].get("labels") != obj["metadata"].get("labels"):
            self.book.namespace_changed(obj["metadata"]["name"])
            self.changed()


def _job_of(workload: Object) -> list[str]:
    metadata = workload["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return ["/".join((one["kind"], metadata["namespace"], one["name"])) for one in owners if one.get("controller")]
