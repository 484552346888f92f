"""Strategic merge patch: a merge patch in which the kind's type decides which lists merge, and by which key.

The rules and messages are those of k8s.io/apimachinery's strategicpatch. Inputs are not changed; the result may
share their parts. `strategic_merge_lists` merges the lists.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torchyard.api.errors import bad_request
from torchyard.api.go_format import format_type
from torchyard.api.objects import Object
from torchyard.api.patch.patch_errors import invalid_patch
from torchyard.api.patch.strategic_merge_lists import (
    DIRECTIVE,
    ListRule,
    merged_list,
    ordered_list,
    unknown_directive,
    without_directives,
)
from torchyard.api.schema.types import Type

RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"
ELEMENT_ORDER = "$setElementOrder"


def apply_strategic_merge_patch(original: Object, patch: Object, type: Type) -> Object:
    """`original`, of the given type, with the strategic merge patch applied."""
    if DIRECTIVE in patch:
        return _apply_directive(patch)
    patch = dict(patch)
    result = _retain_keys(original, patch)
    for key in [key for key in patch if key.startswith(ELEMENT_ORDER)]:
        _order_list(result, patch, key, type)
    for key, value in patch.items():
        if key.startswith(DELETE_FROM):
            _delete_from_list(result, _named_list(key, DELETE_FROM, "primitive list"), value, type)
        elif value is None:
            result.pop(key, None)
        else:
            _merge_field(result, key, value, type)
    return result


def _apply_directive(patch: Object) -> Object:
    match patch[DIRECTIVE]:
        case "replace":
            return {key: value for key, value in patch.items() if key != DIRECTIVE}
        case "delete":
            return {}
        case _:
            raise unknown_directive(patch)


def _retain_keys(original: Object, patch: Object) -> Object:
    """A copy of `original` with only the keys in the patch's `$retainKeys`; removes the directive from the patch."""
    if RETAIN_KEYS not in patch:
        return dict(original)
    retained = patch.pop(RETAIN_KEYS)
    names = {name for name in retained if isinstance(name, str)} if isinstance(retained, list) else set()
    if not isinstance(retained, list) or any(
        key not in names
        for key, value in patch.items()
        if value is not None and not key.startswith((DELETE_FROM, ELEMENT_ORDER))
    ):
        raise bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in original.items() if key in names}


def _merge_field(result: Object, key: str, value: Any, type: Type) -> None:
    current = result.get(key)
    if isinstance(current, dict) and isinstance(value, dict):
        field = _field(type, key)
        result[key] = value if "replace" in field.patch_strategy else apply_strategic_merge_patch(current, value, field)
    elif isinstance(current, list) and isinstance(value, list):
        result[key] = merged_list(current, value, _rule(type, key))
    else:
        new_value = without_directives(value)
        if new_value is None:
            result.pop(key, None)
        else:
            result[key] = new_value


def _delete_from_list(result: Object, key: str, deleted: Any, type: Type) -> None:
    if deleted is None:
        result.pop(key, None)
    elif isinstance(result.get(key), list) and isinstance(deleted, list):
        result[key] = merged_list(result[key], deleted, _rule(type, key), deleting=True)


def _order_list(result: Object, patch: Object, directive: str, type: Type) -> None:
    """Merge a list in the order that the patch sets, and remove both from the patch."""
    order = patch.pop(directive)
    if not isinstance(order, list):
        raise invalid_patch(f"expected a []interface {{}}, but received a {format_type(order)}")
    key = _named_list(directive, ELEMENT_ORDER, "setElementOrder list")
    for source in (result, patch):
        if key in source and not isinstance(source[key], list):
            raise invalid_patch(f"expected a []interface {{}}, but received a {format_type(source[key])}")
    rule = _rule(type, key)
    current, change = result.get(key), patch.pop(key, None)
    merged_items = ordered_list(current, change, order, rule)
    if merged_items is not None:
        result[key] = merged_items


def _named_list(key: str, directive: str, format: str) -> str:
    name, slash, named = key.partition("/")
    if name != directive or not slash:
        raise bad_request(f"invalid patch format of {format}")
    return named


def _field(type: Type, key: str) -> Type:
    if type.shape == "map":
        raise invalid_patch("merging an object in json but data type is not struct, instead is: map")
    field = type.fields.get(key)
    if field is None:
        struct = type.name.rpartition(".")[2]
        raise invalid_patch(f'unable to find api field in struct {struct} for the json field "{key}"')
    return field


def _rule(type: Type, key: str) -> ListRule:
    field = _field(type, key)
    items = field.items
    if items is None:
        raise invalid_patch(f"merging an array in json but data type is not array or slice, instead is: {field.shape}")
    return ListRule(
        "merge" in field.patch_strategy, field.patch_merge_key, partial(apply_strategic_merge_patch, type=items)
    )
