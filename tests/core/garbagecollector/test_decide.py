"""Decisions of the garbage collector: tables of owners and the resulting action."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from torchyard.core.garbagecollector.decide import (
    Action,
    Delete,
    DropOwners,
    OrphanDependents,
    OwnerState,
    RemoveFinalizer,
    decide,
)
from torchyard.core.garbagecollector.graph import GraphNode, OwnerGraph, OwnerReference, node_of


def owner(uid: str, *, blocks: bool = False) -> OwnerReference:
    return OwnerReference(uid, "batch/v1", "Job", f"name-of-{uid}", blocks)


def child(uid: str, *owners: OwnerReference) -> GraphNode:
    return GraphNode(uid, "pods", "n", uid, owners)


@pytest.mark.parametrize(
    ("owners", "action"),
    [
        ({"a": "present"}, None),
        ({"a": "gone"}, Delete("Background")),
        ({"a": "waiting"}, Delete("Background")),
        ({"a": "present", "b": "gone"}, DropOwners(frozenset({"b"}))),
        ({"a": "present", "b": "waiting", "c": "gone"}, DropOwners(frozenset({"b", "c"}))),
        ({"a": "gone", "b": "gone"}, Delete("Background")),
        ({"a": "gone", "b": "waiting"}, Delete("Background")),
    ],
)
def test_an_object_is_deleted_when_no_owner_exists(owners: Mapping[str, OwnerState], action: Action | None) -> None:
    node = child("pod", *(owner(uid) for uid in owners))
    graph = OwnerGraph()
    graph.put(node)
    assert decide(node, graph, owners) == action


def test_an_object_without_owners_is_kept() -> None:
    graph = OwnerGraph()
    node = child("free")
    graph.put(node)
    assert decide(node, graph, {}) is None


def test_foreground_deletion_deletes_dependents_before_their_owner() -> None:
    graph = OwnerGraph()
    top = GraphNode("top", "jobs", "n", "top", (), deleting=True, foreground=True)
    middle = child("middle", owner("top", blocks=True))
    leaf = child("leaf", owner("middle", blocks=True))
    for node in (top, middle, leaf):
        graph.put(node)
    assert decide(top, graph, {}) is None
    assert decide(middle, graph, {"top": "waiting"}) == Delete("Foreground")
    assert graph.remove("leaf") == set()
    assert graph.remove("middle") == {"top"}
    assert decide(top, graph, {}) == RemoveFinalizer("foregroundDeletion")


def test_a_dependent_that_does_not_block_does_not_hold_its_owner() -> None:
    graph = OwnerGraph()
    top = GraphNode("top", "jobs", "n", "top", (), deleting=True, foreground=True)
    graph.put(top)
    graph.put(child("pod", owner("top")))
    assert decide(top, graph, {}) == RemoveFinalizer("foregroundDeletion")


def test_orphaning_releases_every_dependent() -> None:
    graph = OwnerGraph()
    top = GraphNode("top", "jobs", "n", "top", (), deleting=True, orphaning=True)
    pod = child("pod", owner("top"))
    graph.put(top)
    graph.put(pod)
    assert decide(top, graph, {}) == OrphanDependents((pod,))


def test_removing_an_owner_enqueues_its_dependents() -> None:
    graph = OwnerGraph()
    graph.put(child("job"))
    assert graph.put(child("pod", owner("job"))) == {"pod"}
    assert graph.remove("job") == {"pod"}
    assert graph.remove("job") == set()


def test_a_node_is_read_from_metadata() -> None:
    metadata = {
        "uid": "u",
        "name": "p",
        "namespace": "n",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["foregroundDeletion", "example.com/other"],
        "ownerReferences": [{"uid": "o", "apiVersion": "v1", "kind": "Pod", "name": "own", "blockOwnerDeletion": True}],
    }
    node = node_of("pods", metadata)
    assert (node.deleting, node.foreground, node.orphaning) == (True, True, False)
    assert node.owners == (OwnerReference("o", "v1", "Pod", "own", blocks=True),)
