"""The lists of a strategic merge patch: merging by key or by value, directives of single items, and their order.

The order of a merged list is upstream's: items named by the patch keep the patch's order, items only the object has
keep theirs, and the two are interleaved by where they stood in the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torchyard.api.errors import StatusError
from torchyard.apiserver.patch.go_format import format_type, format_v
from torchyard.apiserver.patch.patch_errors import invalid_patch, unprocessable

DIRECTIVE = "$patch"

Items = list[Any]


class ListRule(NamedTuple):
    """How one list of the kind merges."""

    merges: bool  # otherwise the patch's list replaces the object's
    key: str  # what names an item; empty for lists of scalars
    merge_items: Callable[[Any, Any], Any]


def merged_list(current: Items, change: Items, rule: ListRule, *, deleting: bool = False) -> Items:
    """`current` with the items of `change` merged in, or taken out when `deleting`."""
    if not rule.merges:
        return change
    if not current and not change:
        return current
    if not _hold_objects(current, change):
        if deleting:
            return [item for item in current if item not in change]
        return _in_order(list(dict.fromkeys([*current, *change])), change, current, "")
    if not rule.key:
        raise invalid_patch("cannot merge lists without merge key for type struct")
    current, change = _item_directives(current, change, rule.key)
    return _in_order(_merged_by_key(current, change, rule), change, current, rule.key)


def ordered_list(current: Items | None, change: Items | None, order: Items, rule: ListRule) -> Items | None:
    """The merged list in the order that `$setElementOrder` gives; None when neither side has the list."""
    _check_order(change or [], order, rule.key)
    if change is None:
        if current is None:
            return None
        result = current
    elif current is None:
        result = without_directives(change)
    else:
        result = merged_list(current, change, rule)
    _hold_objects(current or [], change or [])
    return _in_order(result, order, current or [], rule.key)


def without_directives(value: Any) -> Any:
    """A new value as it may be stored: without null fields, and without what carries a directive (None if it does)."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return None
        inner = ((key, without_directives(one)) for key, one in value.items())
        return {key: one for key, one in inner if one is not None}
    if isinstance(value, list):
        # A null item stays: only the fields of objects are dropped for being null.
        return [kept for one in value if (kept := without_directives(one)) is not None or one is None]
    return value


def unknown_directive(patch: dict[str, Any]) -> StatusError:
    return invalid_patch(f"unknown patch type: {format_v(patch[DIRECTIVE])} in map: {format_v(patch)}")


def _item_directives(current: Items, change: Items, key: str) -> tuple[Items, Items]:
    """What is left of both lists once the directives among the patch's items are obeyed."""
    plain = [item for item in change if DIRECTIVE not in item]
    replace = False
    for item in change:
        match item.get(DIRECTIVE):
            case None:
                pass
            case "delete":
                gone = _key_of(item, key)
                current = [one for one in current if one.get(key, _NO_KEY) != gone]
            case "replace":
                replace = True
            case "merge":
                raise invalid_patch("merging lists cannot yet be specified in the patch")
            case _:
                raise unknown_directive(item)
    return (plain, []) if replace else (current, plain)


def _merged_by_key(current: Items, change: Items, rule: ListRule) -> Items:
    result = list(current)
    for item in change:
        name = _key_of(item, rule.key)
        place = _find(result, name, rule.key)
        if place is None:
            result.append(item)
        else:
            result[place] = rule.merge_items(result[place], item)
    return result


def _in_order(items: Items, asked: Items, before: Items, key: str) -> Items:
    """`items` sorted: those in `asked` as there, the others as in `before`, interleaved by their places in `before`."""
    name = _namer(key)
    wanted, stood = _places(asked, name), _places(before, name)
    named = [(name(item), item) for item in items]
    asked_for = sorted((pair for pair in named if pair[0] in wanted), key=lambda pair: wanted[pair[0]])
    others = sorted((pair for pair in named if pair[0] not in wanted), key=lambda pair: stood.get(pair[0], 0))
    result: Items = []
    while asked_for and others:
        other_first = stood.get(others[0][0], len(before)) < stood.get(asked_for[0][0], -1)
        result.append((others if other_first else asked_for).pop(0)[1])
    return result + [item for _, item in asked_for or others]


def _check_order(change: Items, order: Items, key: str) -> None:
    """The patch's items must all be in `$setElementOrder`, and in the same order."""
    if not change or not order:
        return
    name = _namer(key)
    remaining = iter([name(item) for item in order])
    for item in change:
        if key and isinstance(item, dict) and DIRECTIVE in item:
            continue
        wanted = name(item)
        if not any(one == wanted for one in remaining):
            raise invalid_patch(
                f"The order in patch list:\n{format_v(change)}\n doesn't match $setElementOrder list:\n"
                f"{format_v(order)}\n"
            )


_NO_KEY = object()


def _namer(key: str) -> Callable[[Any], Any]:
    return (lambda item: _key_of(item, key)) if key else (lambda item: item)


def _places(items: Items, name: Callable[[Any], Any]) -> dict[Any, int]:
    places: dict[Any, int] = {}
    for place, item in enumerate(items):
        places.setdefault(name(item), place)
    return places


def _find(items: Items, name: Any, key: str) -> int | None:
    return next((place for place, item in enumerate(items) if item.get(key, _NO_KEY) == name), None)


def _key_of(item: Any, key: str) -> Any:
    if not isinstance(item, dict):
        raise invalid_patch(f"expected a map[string]interface {{}}, but received a {format_type(item)}")
    if key not in item:
        raise invalid_patch(f"map: {format_v(item)} does not contain declared merge key: {key}")
    name = item[key]
    if isinstance(name, dict | list):
        raise invalid_patch(f"map: {format_v(item)} has no usable value for merge key: {key}")
    return name


def _hold_objects(*lists: Items) -> bool:
    """Whether the items of both lists are objects; they must all be of one type, and no lists."""
    kinds = {type(item) for items in lists for item in items}
    if not kinds:
        raise invalid_patch("no elements in any of the given slices")
    if len(kinds) > 1:
        raise invalid_patch(f"list element types are not identical: {format_v(list(lists))}")
    kind = kinds.pop()
    if kind is list:
        raise unprocessable()
    return kind is dict
