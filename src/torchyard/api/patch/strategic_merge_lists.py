"""Lists in strategic merge patches: merging by key or by value, item directives, and the order of items.

The order of a merged list is upstream's: items in the patch keep the patch's order, items only in the object keep
theirs, and the two are interleaved by their positions in the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torchyard.api.errors import StatusError
from torchyard.api.go_format import format_type, format_v
from torchyard.api.patch.patch_errors import invalid_patch, unprocessable

DIRECTIVE = "$patch"

Items = list[Any]


class ListRule(NamedTuple):
    """How a list of the kind merges."""

    merges: bool  # if false, the patch's list replaces the object's
    key: str  # the merge key; empty for lists of scalars
    merge_items: Callable[[Any, Any], Any]


def merged_list(current: Items, change: Items, rule: ListRule, *, deleting: bool = False) -> Items:
    """`current` with the items of `change` merged in, or removed with `deleting`."""
    if not rule.merges:
        return change
    if not current and not change:
        return current
    if not _are_objects(current, change):
        if deleting:
            deleted = set(change)
            return [item for item in current if item not in deleted]
        return _sort_merged(list(dict.fromkeys([*current, *change])), change, current, "")
    if not rule.key:
        raise invalid_patch("cannot merge lists without merge key for type struct")
    current, change = _item_directives(current, change, rule.key)
    return _sort_merged(_merged_by_key(current, change, rule), change, current, rule.key)


def ordered_list(current: Items | None, change: Items | None, order: Items, rule: ListRule) -> Items | None:
    """The merged list in the order of `$setElementOrder`; None if neither side has the list."""
    _check_order(change or [], order, rule.key)
    if change is None:
        if current is None:
            return None
        result = current
    elif current is None:
        result = without_directives(change)
    else:
        result = merged_list(current, change, rule)
    _are_objects(current or [], change or [])
    return _sort_merged(result, order, current or [], rule.key)


def without_directives(value: Any) -> Any:
    """A new value without null fields and without objects that have a directive (None if the value itself has one)."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return None
        inner = ((key, without_directives(inner_value)) for key, inner_value in value.items())
        return {key: inner_value for key, inner_value in inner if inner_value is not None}
    if isinstance(value, list):
        # A null item stays: only the fields of objects are dropped for being null.
        return [
            cleaned
            for inner_value in value
            if (cleaned := without_directives(inner_value)) is not None or inner_value is None
        ]
    return value


def unknown_directive(patch: dict[str, Any]) -> StatusError:
    return invalid_patch(f"unknown patch type: {format_v(patch[DIRECTIVE])} in map: {format_v(patch)}")


def _item_directives(current: Items, change: Items, key: str) -> tuple[Items, Items]:
    """Both lists after the directives in the patch's items are applied."""
    plain = [item for item in change if DIRECTIVE not in item]
    replace = False
    deleted: set[Any] = set()
    for item in change:
        match item.get(DIRECTIVE):
            case None:
                pass
            case "delete":
                deleted.add(_key_of(item, key))
            case "replace":
                replace = True
            case "merge":
                raise invalid_patch("merging lists cannot yet be specified in the patch")
            case _:
                raise unknown_directive(item)
    if replace:
        return plain, []
    if deleted:
        current = [item for item in current if _hashable(item.get(key, _NO_KEY)) not in deleted]
    return current, plain


def _merged_by_key(current: Items, change: Items, rule: ListRule) -> Items:
    result = list(current)
    positions: dict[Any, int] = {}
    for index, item in enumerate(result):
        positions.setdefault(_hashable(item.get(rule.key, _NO_KEY)), index)
    for item in change:
        name = _key_of(item, rule.key)
        position = positions.get(name)
        if position is None:
            positions[name] = len(result)
            result.append(item)
        else:
            result[position] = rule.merge_items(result[position], item)
    return result


def _sort_merged(items: Items, requested: Items, previous: Items, key: str) -> Items:
    """Sort `items`: as in `requested`, the others as in `previous`, interleaved by their positions in `previous`."""
    name = _namer(key)
    requested_positions, previous_positions = _positions(requested, name), _positions(previous, name)
    named = [(name(item), item) for item in items]
    requested_items = sorted(
        (pair for pair in named if pair[0] in requested_positions), key=lambda pair: requested_positions[pair[0]]
    )
    others = sorted(
        (pair for pair in named if pair[0] not in requested_positions),
        key=lambda pair: previous_positions.get(pair[0], 0),
    )
    result: Items = []
    at = other_at = 0
    while at < len(requested_items) and other_at < len(others):
        requested_name, other_name = requested_items[at][0], others[other_at][0]
        if previous_positions.get(other_name, len(previous)) < previous_positions.get(requested_name, -1):
            result.append(others[other_at][1])
            other_at += 1
        else:
            result.append(requested_items[at][1])
            at += 1
    return result + [item for _, item in (*requested_items[at:], *others[other_at:])]


def _check_order(change: Items, order: Items, key: str) -> None:
    """The patch's items must all be in `$setElementOrder`, and in the same order."""
    if not change or not order:
        return
    name = _namer(key)
    remaining = iter([name(item) for item in order])
    for item in change:
        if key and isinstance(item, dict) and DIRECTIVE in item:
            continue
        item_name = name(item)
        if not any(ordered_name == item_name for ordered_name in remaining):
            raise invalid_patch(
                f"The order in patch list:\n{format_v(change)}\n doesn't match $setElementOrder list:\n"
                f"{format_v(order)}\n"
            )


_NO_KEY = object()


def _namer(key: str) -> Callable[[Any], Any]:
    return (lambda item: _key_of(item, key)) if key else (lambda item: item)


def _positions(items: Items, name: Callable[[Any], Any]) -> dict[Any, int]:
    positions: dict[Any, int] = {}
    for index, item in enumerate(items):
        positions.setdefault(name(item), index)
    return positions


def _hashable(name: Any) -> Any:
    """The key of an item, to look it up; a stored object or list is no key."""
    return _NO_KEY if isinstance(name, dict | list) else name


def _key_of(item: Any, key: str) -> Any:
    if not isinstance(item, dict):
        raise invalid_patch(f"expected a map[string]interface {{}}, but received a {format_type(item)}")
    if key not in item:
        raise invalid_patch(f"map: {format_v(item)} does not contain declared merge key: {key}")
    name = item[key]
    if isinstance(name, dict | list):
        raise invalid_patch(f"map: {format_v(item)} has no usable value for merge key: {key}")
    return name


def _are_objects(*lists: Items) -> bool:
    """Whether the items of both lists are objects; they must all have one type, and lists are not allowed."""
    kinds = {type(item) for items in lists for item in items}
    if not kinds:
        raise invalid_patch("no elements in any of the given slices")
    if len(kinds) > 1:
        raise invalid_patch(f"list element types are not identical: {format_v(list(lists))}")
    kind = kinds.pop()
    if kind is list:
        raise unprocessable()
    return kind is dict
