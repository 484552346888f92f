"""Sets of field paths, in the very form they are stored in: `fieldsV1`.

A set is a nested dict. A key names one step (`f:name` a field, `k:{...}` a list item by its keys, `v:...` a list item
by its value); its value holds what lies beneath. A path is a member of the set if its dict is empty or contains ".".

    {"f:spec": {"f:replicas": {}, "f:ports": {'k:{"port":80}': {".": {}, "f:name": {}}}}}

has three members: .spec.replicas, .spec.ports[port=80] and .spec.ports[port=80].name. Sets are values: no function here
changes one, and results may share parts with their arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FieldSet = dict[str, Any]
FieldPath = tuple[str, ...]

SELF = "."


def is_member(node: FieldSet) -> bool:
    return not node or SELF in node


def of_paths(*paths: FieldPath) -> FieldSet:
    """The set with exactly these members."""
    result: FieldSet = {}
    for path in paths:
        result = union(result, _of_path(path))
    return result


def _of_path(path: FieldPath) -> FieldSet:
    node: FieldSet = {}
    for step in reversed(path):
        node = {step: node}
    return node


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or not right:
        return left or right
    result = left | right
    for step, node in right.items():
        mine = left.get(step)
        if mine is not None:
            result[step] = _united(mine, node)
    return result


def _united(left: FieldSet, right: FieldSet) -> FieldSet:
    if left and right:
        return union(left, right)
    node = left or right
    return node if is_member(node) else {SELF: {}, **node}


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of `left` that are not in `right`: `left` itself if all are."""
    result = left
    for step, other in right.items():
        node = left.get(step)
        if node is None:
            continue
        kept = None
        if step != SELF:
            if node:
                kept = _without(node, other)
            elif other and SELF not in other:
                kept = node
            if kept is node:
                continue
        if result is left:
            result = left.copy()
        if kept is None:
            del result[step]
        else:
            result[step] = kept
    return result


def _without(node: FieldSet, other: FieldSet) -> FieldSet | None:
    """A node that is no leaf without the members of another, itself among them; None when nothing is left."""
    left = difference(node, other)
    was_member = SELF in node
    stays = was_member and not is_member(other)
    if left is node and stays == was_member:
        return node
    beneath = left.copy() if left is node else left
    beneath.pop(SELF, None)
    if beneath:
        return {SELF: {}, **beneath} if stays else beneath
    return {} if stays else None


def difference_below(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of `left` that are neither in `right` nor beneath one of its members."""
    if not right:
        return left
    result: FieldSet = {}
    for step, node in left.items():
        other = right.get(step)
        if other is None:
            result[step] = node
        elif step != SELF and not is_member(other):
            kept = difference_below(node, other)
            if kept or is_member(node):
                result[step] = {} if kept.keys() == {SELF} else kept
    return result


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for step, node in left.items():
        other = right.get(step)
        if other is None or step == SELF:
            continue
        both = intersection(node, other)
        if is_member(node) and is_member(other):
            result[step] = {SELF: {}, **both} if both else {}
        elif both:
            result[step] = both
    return result


def members(fields: FieldSet, order: Any = None) -> Iterator[FieldPath]:
    """The paths of all members: at every depth the members first, then what lies beneath each step.

    `order` sorts steps; without it they come as they are stored.
    """
    yield from _members(fields, (), order)


def _members(fields: FieldSet, prefix: FieldPath, order: Any) -> Iterator[FieldPath]:
    steps = [step for step in fields if step != SELF]
    if order is not None:
        steps.sort(key=order)
    for step in steps:
        if is_member(fields[step]):
            yield (*prefix, step)
    for step in steps:
        if fields[step]:
            yield from _members(fields[step], (*prefix, step), order)
