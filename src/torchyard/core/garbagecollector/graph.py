"""The graph of owner references: a small node for each object, updated from its metadata. Pure data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class OwnerReference(NamedTuple):
    """One owner reference."""

    uid: str
    api_version: str
    kind: str
    name: str
    blocks: bool


@dataclass(frozen=True, slots=True)
class GraphNode:
    """What the garbage collector needs of one object. `resource` is the caller's identifier of its resource."""

    uid: str
    resource: Any
    namespace: str
    name: str
    owners: tuple[OwnerReference, ...] = ()
    deleting: bool = False
    foreground: bool = False
    orphaning: bool = False


def node_of(resource: Any, metadata: dict[str, Any]) -> GraphNode:
    finalizers = metadata.get("finalizers") or ()
    deleting = bool(metadata.get("deletionTimestamp"))
    owners = tuple(
        OwnerReference(
            owner["uid"], owner["apiVersion"], owner["kind"], owner["name"], bool(owner.get("blockOwnerDeletion"))
        )
        for owner in metadata.get("ownerReferences") or ()
    )
    return GraphNode(
        metadata["uid"],
        resource,
        metadata.get("namespace", ""),
        metadata["name"],
        owners,
        deleting,
        deleting and FOREGROUND in finalizers,
        deleting and ORPHAN in finalizers,
    )


class OwnerGraph:
    """Objects by uid, and the dependents of each."""

    def __init__(self) -> None:
        self._nodes: dict[str, GraphNode] = {}
        self._dependents: dict[str, set[str]] = {}

    def get(self, uid: str) -> GraphNode | None:
        return self._nodes.get(uid)

    def dependents(self, uid: str) -> list[GraphNode]:
        return [self._nodes[dependent] for dependent in self._dependents.get(uid, ()) if dependent in self._nodes]

    def dependents_of(self, uid: str) -> set[str]:
        """The uids of an object's dependents, even if the object itself is unknown."""
        return set(self._dependents.get(uid, ()))

    def put(self, node: GraphNode) -> set[str]:
        """Add or update an object; returns the uids of the objects to look at again."""
        before = self._nodes.get(node.uid)
        self._nodes[node.uid] = node
        changed: set[str] = set()
        if before is None or before.owners != node.owners:
            self._relink(node.uid, before.owners if before else (), node.owners)
            if node.owners:
                changed.add(node.uid)
            # An owner in foreground deletion may have one dependent less now.
            changed.update(owner.uid for owner in (before.owners if before else ()) if self._waits(owner.uid))
        if node.foreground and not (before and before.foreground):
            changed.add(node.uid)
            changed.update(self._dependents.get(node.uid, ()))
        if node.orphaning and not (before and before.orphaning):
            changed.add(node.uid)
        return changed

    def remove(self, uid: str) -> set[str]:
        """Remove a deleted object; returns the uids of the objects to look at again."""
        node = self._nodes.pop(uid, None)
        if node is None:
            return set()
        self._relink(uid, node.owners, ())
        changed = set(self._dependents.get(uid, ()))
        changed.update(owner.uid for owner in node.owners if self._waits(owner.uid))
        return changed

    def _waits(self, uid: str) -> bool:
        node = self._nodes.get(uid)
        return node is not None and node.foreground

    def _relink(self, uid: str, before: Iterable[OwnerReference], after: Iterable[OwnerReference]) -> None:
        for owner in before:
            dependents = self._dependents.get(owner.uid)
            if dependents is not None:
                dependents.discard(uid)
                if not dependents:
                    del self._dependents[owner.uid]
        for owner in after:
            self._dependents.setdefault(owner.uid, set()).add(uid)
