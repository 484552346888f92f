"""The garbage collector: deletes dependents of deleted owners, by the propagation policy of the deletion."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

from torchyard.api.cluster import messages
from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.core.garbagecollector.decide import (
    Delete,
    DropOwners,
    OrphanDependents,
    OwnerState,
    RemoveFinalizer,
    decide,
)
from torchyard.core.garbagecollector.graph import ORPHAN, GraphNode, OwnerGraph, OwnerReference, node_of
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.supervisor import run_parts
from torchyard.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

# Metadata that makes an object relevant here, as it appears in its JSON.
_OWNERS, _FOREGROUND, _ORPHAN = b'"ownerReferences":', b'"foregroundDeletion"', b'"orphan"'


# An owner in another namespace counts as gone like one that does not exist; the search is only for the event that says
# so. An object may name twenty thousand owners, and a search reads all objects of a kind.
_MAX_SEARCHES = 10
# So many deleted owners are remembered, so that their dependents need not ask for them: an answer that an owner exists
# nowhere costs a search.
_MAX_DELETED_OWNERS = 10_000
# After so many owners, other tasks of the event loop run.
_YIELD_INTERVAL = 50


class GarbageCollector:
    """`resource_of` returns the resource that serves an apiVersion and kind.

    `observe_change` reports every change of an object. Objects without owners and without dependents that wait are
    skipped there.
    """

    def __init__(
        self, client: Client, resource_of: Callable[[str, str], GroupVersionResource | None], recorder: EventRecorder
    ) -> None:
        self._client = client
        self._resource_of = resource_of
        self._recorder = recorder
        self._graph = OwnerGraph()
        self._queue: WorkQueue[str] = WorkQueue()
        self._deleted_owners: OrderedDict[str, None] = OrderedDict()  # by uid, which is never used again

    def observe_change(self, encoded: bytes, previous: bytes, decode: Callable[[], Object], *, is_gone: bool) -> None:
        """Take a change of any object, as its old and new JSON. Called for every write, so most are not decoded.

        Only objects that have owners, wait for their dependents or are gone matter; their JSON contains one of the
        markers.
        """
        if not is_gone and not _is_relevant(encoded) and not (previous and _is_relevant(previous)):
            return
        obj = decode()
        ref = self._resource_of(obj["apiVersion"], obj["kind"])
        if ref is not None:
            self.observe(ref, obj["kind"], obj["metadata"], is_gone=is_gone)

    def observe(self, ref: GroupVersionResource, kind: str, metadata: Object, *, is_gone: bool) -> None:
        """Record an object's current metadata, or its deletion."""
        if is_gone:
            uid = metadata["uid"]
            changed = self._graph.remove(uid) | self._graph.dependents_of(uid)
            if self._graph.dependents_of(uid):
                self._remember_deleted(uid)
        else:
            changed = self._graph.put(node_of((ref, kind), metadata))
        for uid in changed:
            self._queue.add(uid)

    def _remember_deleted(self, uid: str) -> None:
        self._deleted_owners[uid] = None
        if len(self._deleted_owners) > _MAX_DELETED_OWNERS:
            self._deleted_owners.popitem(last=False)

    async def run(self, workers: int = 4) -> None:
        try:
            await run_parts(**{f"worker-{number}": self._work for number in range(workers)})
        finally:
            self._queue.close()

    async def _work(self) -> None:
        while True:
            uid = await self._queue.get()
            try:
                await self._collect(uid)
                self._queue.forget(uid)
            except YardError as error:
                log.debug(
                    "garbage collection failed: uid=%s error=%s retry_seconds=%.2f",
                    uid,
                    error,
                    self._queue.add_rate_limited(uid),
                )
            except Exception:
                log.exception(
                    "garbage collection raised an unexpected exception: uid=%s retry_seconds=%.2f",
                    uid,
                    self._queue.add_rate_limited(uid),
                )
            finally:
                self._queue.done(uid)

    async def _collect(self, uid: str) -> None:
        node = self._graph.get(uid)
        if node is None:
            return
        owners: dict[str, OwnerState] = {}
        searches = _MAX_SEARCHES
        for number, owner in enumerate(node.owners, 1):
            owner_node, is_searched = await self._owner_node(node, owner, search=searches > 0)
            searches -= is_searched
            owners[owner.uid] = self._owner_state(node, owner, owner_node)
            if number % _YIELD_INTERVAL == 0:
                await asyncio.sleep(0)  # the plane's own client answers without a pause
        action = decide(node, self._graph, owners)
        try:
            await self._apply(node, action)
        except StatusError as error:
            if error.status != 404:
                raise

    async def _owner_node(
        self, node: GraphNode, owner: OwnerReference, *, search: bool
    ) -> tuple[GraphNode | OwnerState, bool]:
        """An owner, or its state without one; from the graph if it is known there, else from the server.

        With `search`, in other namespaces too. Also returns whether they were searched.
        """
        owner_node = self._graph.get(owner.uid)
        if owner_node is not None:
            return owner_node, False
        if owner.uid in self._deleted_owners:
            return "gone", False
        ref = self._resource_of(owner.api_version, owner.kind)
        if ref is None:
            return "present", False  # a kind that is not served (yet) does not prove that the owner is gone
        owner_object = await self._client.find(ref, owner.name, node.namespace if ref.namespaced else "")
        is_found = owner_object is not None and owner_object["metadata"]["uid"] == owner.uid
        is_searched = not is_found and search and ref.namespaced
        if is_searched:
            owner_object = await self._search(ref, owner)
        if owner_object is None or owner_object["metadata"]["uid"] != owner.uid:
            return "gone", is_searched
        return node_of((ref, owner.kind), owner_object["metadata"]), is_searched

    def _owner_state(self, node: GraphNode, owner: OwnerReference, owner_node: GraphNode | OwnerState) -> OwnerState:
        if not isinstance(owner_node, GraphNode):
            return owner_node
        if owner_node.namespace and owner_node.namespace != node.namespace:
            self._recorder.event(
                _reference(node),
                "Warning",
                messages.INVALID_OWNER_NAMESPACE,
                messages.owner_not_in_namespace(owner.api_version, owner.kind, node.namespace, owner.name, owner.uid),
            )
            return "gone"
        return "waiting" if owner_node.foreground else "present"

    async def _search(self, ref: GroupVersionResource, owner: OwnerReference) -> Object | None:
        """The owner in another namespace than its dependent's, which makes the reference invalid."""
        namesakes = await self._client.list(ref, fields=f"metadata.name={owner.name}")
        return next((namesake for namesake in namesakes.items if namesake["metadata"]["uid"] == owner.uid), None)

    async def _apply(self, node: GraphNode, action: object) -> None:
        match action:
            case Delete(policy):
                await self._client.delete(node.resource[0], node.name, node.namespace, uid=node.uid, propagation=policy)
            case DropOwners(uids):
                await self._drop_owners(node, uids)
            case RemoveFinalizer(name):
                await self._remove_finalizer(node, name)
            case OrphanDependents(dependents):
                for dependent in dependents:
                    await self._drop_owners(dependent, frozenset((node.uid,)))
                await self._remove_finalizer(node, ORPHAN)

    async def _drop_owners(self, node: GraphNode, uids: frozenset[str]) -> None:
        current = await self._client.find(node.resource[0], node.name, node.namespace)
        if current is None or current["metadata"]["uid"] != node.uid:
            return
        metadata = current["metadata"]
        remaining = [owner for owner in metadata.get("ownerReferences") or () if owner["uid"] not in uids]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "ownerReferences": remaining or None}}
        await self._client.patch(node.resource[0], node.name, patch, node.namespace)

    async def _remove_finalizer(self, node: GraphNode, name: str) -> None:
        current = await self._client.find(node.resource[0], node.name, node.namespace)
        if current is None or current["metadata"]["uid"] != node.uid:
            return
        metadata = current["metadata"]
        if name not in (metadata.get("finalizers") or ()):
            return
        remaining = [finalizer for finalizer in metadata["finalizers"] if finalizer != name]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": remaining or None}}
        await self._client.patch(node.resource[0], node.name, patch, node.namespace)


def _is_relevant(encoded: bytes) -> bool:
    return _OWNERS in encoded or _FOREGROUND in encoded or _ORPHAN in encoded


def _reference(node: GraphNode) -> Object:
    ref, kind = node.resource
    return {
        "kind": kind,
        "apiVersion": ref.api_version,
        "metadata": {"name": node.name, "namespace": node.namespace, "uid": node.uid},
    }
