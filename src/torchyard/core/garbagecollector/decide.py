"""What to do about one object, given the state of its owners. Mirrors upstream's attemptToDeleteItem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torchyard.core.garbagecollector.graph import GraphNode, OwnerGraph

OwnerState = Literal["present", "gone", "waiting"]  # waiting: in foreground deletion, until its dependents are gone


@dataclass(frozen=True, slots=True)
class Delete:
    policy: Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True, slots=True)
class DropOwners:
    """Remove the references to these owners from the object; it has other owners that exist."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    name: str


@dataclass(frozen=True, slots=True)
class OrphanDependents:
    """Remove the references to this object from its dependents, then the orphan finalizer."""

    dependents: tuple[GraphNode, ...] = field(default=())


Action = Delete | DropOwners | RemoveFinalizer | OrphanDependents


def decide(node: GraphNode, graph: OwnerGraph, owners: Mapping[str, OwnerState]) -> Action | None:
    """The next action for `node`; None if there is none. `owners` holds the state of each of its owners."""
    if node.orphaning:
        return OrphanDependents(tuple(graph.dependents(node.uid)))
    if node.foreground:
        blocked = any(_blocks(dependent, node.uid) for dependent in graph.dependents(node.uid))
        return None if blocked else RemoveFinalizer("foregroundDeletion")
    if node.deleting or not node.owners:
        return None
    present = [owner.uid for owner in node.owners if owners[owner.uid] == "present"]
    gone = [owner.uid for owner in node.owners if owners[owner.uid] == "gone"]
    waiting = [owner.uid for owner in node.owners if owners[owner.uid] == "waiting"]
    if present:
        return DropOwners(frozenset((*gone, *waiting))) if gone or waiting else None
    if waiting and graph.dependents(node.uid):
        return Delete("Foreground")
    return Delete("Background")


def _blocks(dependent: GraphNode, owner: str) -> bool:
    return any(reference.uid == owner and reference.blocks for reference in dependent.owners)
