"""Deletion of what queues need: an object stays, with Kueue's finalizer, for as long as something uses it.

A ClusterQueue stays until none of its workloads holds quota, a ResourceFlavor and an AdmissionCheck until no
ClusterQueue names them.
"""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.gvr import CHECKS, CLUSTER_QUEUES, FLAVORS
from torchyard.controllers.queue.stores import QueueStore
from torchyard.kube.informer import Informer, Key

_KINDS = {gvr.plural: gvr for gvr in (CLUSTER_QUEUES, FLAVORS, CHECKS)}


class FinalizerController:
    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._informers: dict[str, Informer] = {
            CLUSTER_QUEUES.plural: store.cluster_queues,
            FLAVORS.plural: store.flavors,
            CHECKS.plural: store.checks,
        }
        self._controller = Controller("kueue-finalizers", self._reconcile, store.informers, workers=1)
        self._deleting: set[Key] = set()  # plural, name
        for plural, informer in self._informers.items():
            informer.on_change(self._follow(plural))
        store.on_change(self._retry)

    async def run(self) -> None:
        await self._controller.run()

    def _follow(self, plural: str) -> Callable[[str, Object, Object | None], None]:
        def follow(change: str, obj: Object, _before: Object | None) -> None:
            metadata = obj["metadata"]
            key = (plural, metadata["name"])
            if change == "DELETED":
                self._deleting.discard(key)
            elif metadata.get("deletionTimestamp"):
                self._deleting.add(key)
                self._controller.queue.add(key)
            elif plural == CHECKS.plural and names.IN_USE not in (metadata.get("finalizers") or ()):
                self._controller.queue.add(key)

        return follow

    def _retry(self) -> None:
        """Something changed: what used an object that is being deleted may be gone."""
        for key in self._deleting:
            self._controller.queue.add(key)

    async def _reconcile(self, key: Key) -> float | None:
        plural, name = key
        obj = self._informers[plural].get("", name)
        if obj is None:
            return None
        finalizers: list[str] = obj["metadata"].get("finalizers") or []
        if not obj["metadata"].get("deletionTimestamp"):
            if plural == CHECKS.plural and names.IN_USE not in finalizers:
                await self._set_finalizers(_KINDS[plural], obj, [*finalizers, names.IN_USE])
        elif names.IN_USE in finalizers and not self._is_used(plural, name):
            remaining = [finalizer for finalizer in finalizers if finalizer != names.IN_USE]
            await self._set_finalizers(_KINDS[plural], obj, remaining)
        return None

    def _is_used(self, plural: str, name: str) -> bool:
        if plural == CLUSTER_QUEUES.plural:
            return bool(self._store.state.cache.reserving_workloads("", name))
        specs = (obj.get("spec") or {} for obj in self._store.cluster_queues.all())
        return any(name in (_flavors(spec) if plural == FLAVORS.plural else _checks(spec)) for spec in specs)

    async def _set_finalizers(self, gvr: GroupVersionResource, obj: Object, finalizers: list[str]) -> None:
        metadata = obj["metadata"]
        precondition = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        patch = {"metadata": {**precondition, "finalizers": finalizers}}
        try:
            await self._store.client.patch(gvr, metadata["name"], patch)
        except StatusError as error:
            if error.status != 404:
                raise


def _flavors(spec: Object) -> set[str]:
    return {flavor["name"] for group in spec.get("resourceGroups") or () for flavor in group["flavors"]}


def _checks(spec: Object) -> set[str]:
    return {rule["name"] for rule in (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()}
