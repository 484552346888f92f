"""Sets of field paths, in the form in which they are stored: `fieldsV1`.

A set is a nested dict. A key names one step (`f:name` a field, `k:{...}` a list item by its keys, `v:...` a list item
by its value); its value holds the steps below. A path is a member of the set if its dict is empty or contains ".".

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
        left_node = left.get(step)
        if left_node is not None:
            result[step] = _union_nodes(left_node, node)
    return result


def _union_nodes(left: FieldSet, right: FieldSet) -> FieldSet:
    if left and right:
        return union(left, right)
    node = left or right
    return node if is_member(node) else {SELF: {}, **node}


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of `left` that are not in `right`; `left` itself if nothing is removed."""
    result = left
    for step, right_node in right.items():
        node = left.get(step)
        if node is None:
            continue
        remaining = None
        if step != SELF:
            if node:
                remaining = _without(node, right_node)
            elif right_node and SELF not in right_node:
                remaining = node
            if remaining is node:
                continue
        if result is left:
            result = left.copy()
        if remaining is None:
            del result[step]
        else:
            result[step] = remaining
    return result


def _without(node: FieldSet, other: FieldSet) -> FieldSet | None:
    """An inner node without the members of another, the node itself included; None if nothing remains."""
    remaining = difference(node, other)
    was_member = SELF in node
    stays = was_member and not is_member(other)
    if remaining is node and stays == was_member:
        return node
    below = remaining.copy() if remaining is node else remaining
    below.pop(SELF, None)
    if below:
        return {SELF: {}, **below} if stays else below
    return {} if stays else None


def difference_below(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of `left` that are neither in `right` nor below one of its members."""
    if not right:
        return left
    result: FieldSet = {}
    for step, node in left.items():
        right_node = right.get(step)
        if right_node is None:
            result[step] = node
        elif step != SELF and not is_member(right_node):
            remaining = difference_below(node, right_node)
            if remaining or is_member(node):
                result[step] = {} if remaining.keys() == {SELF} else remaining
    return result


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for step, node in left.items():
        right_node = right.get(step)
        if right_node is None or step == SELF:
            continue
        both = intersection(node, right_node)
        if is_member(node) and is_member(right_node):
            result[step] = {SELF: {}, **both} if both else {}
        elif both:
            result[step] = both
    return result


def members(fields: FieldSet, order: Any = None) -> Iterator[FieldPath]:
    """The paths of all members: at every depth the members first, then those below each step.

    `order` is a sort key for steps; without it they are in stored order.
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
