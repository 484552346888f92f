"""Who owns whom: a small node per object, kept current from metadata. Pure data; nothing is written here."""

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
    """What matters of one object. `resource` is whatever the caller uses to name its resource."""

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
    """All objects of the plane by uid, and for each the objects it owns."""

    def __init__(self) -> None:
        self._nodes: dict[str, GraphNode] = {}
        self._dependents: dict[str, set[str]] = {}

    def get(self, uid: str) -> GraphNode | None:
        return self._nodes.get(uid)

    def dependents(self, uid: str) -> list[GraphNode]:
        return [self._nodes[dependent] for dependent in self._dependents.get(uid, ()) if dependent in self._nodes]

    def dependents_of(self, uid: str) -> set[str]:
        """The uids of what an object owns, whether or not the object itself is known."""
        return set(self._dependents.get(uid, ()))

    def put(self, node: GraphNode) -> set[str]:
        """Take an object's present state; answers the uids whose situation that may change."""
        before = self._nodes.get(node.uid)
        self._nodes[node.uid] = node
        changed: set[str] = set()
        if before is None or before.owners != node.owners:
            self._relink(node.uid, before.owners if before else (), node.owners)
            if node.owners:
                changed.add(node.uid)
            # An owner that waits for its dependents may have one less now.
            changed.update(owner.uid for owner in (before.owners if before else ()) if self._waits(owner.uid))
        if node.foreground and not (before and before.foreground):
            changed.add(node.uid)
            changed.update(self._dependents.get(node.uid, ()))
        if node.orphaning and not (before and before.orphaning):
            changed.add(node.uid)
        return changed

    def remove(self, uid: str) -> set[str]:
        """Forget an object that is gone; answers the uids whose situation that changes."""
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
