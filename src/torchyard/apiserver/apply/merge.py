"""Putting an applied object into the live one, and taking fields out of an object."""

from __future__ import annotations

from typing import Any

from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.fieldset import FieldSet, is_member
from torchyard.apiserver.apply.path_elements import item_step
from torchyard.apiserver.apply.values import ABSENT, ANY, child_type, is_granular


def merge_applied(live: Any, applied: Any, type: Type) -> Any:
    """`live` with everything `applied` says. Nothing goes by this, not even by a null where the live value splits."""
    if live is ABSENT:
        return applied
    if applied is ABSENT:
        return live
    if isinstance(live, dict) and is_granular(live, type) and (applied is None or isinstance(applied, dict)):
        return _merged_objects(live, applied or {}, type)
    if isinstance(live, list) and is_granular(live, type) and (applied is None or isinstance(applied, list)):
        return _merged_lists(live, applied or [], type)
    return applied


def _merged_objects(live: dict[str, Any], applied: dict[str, Any], type: Type) -> dict[str, Any]:
    result = dict(live)
    for key, value in applied.items():
        result[key] = merge_applied(live.get(key, ABSENT), value, child_type(type, key))
    return result


def _merged_lists(live: list[Any], applied: list[Any], type: Type) -> list[Any]:
    """Upstream's order: shared items as in the applied list; items only the live list has stay where they were."""
    item_type = type.items or ANY
    theirs = {item_step(item, type): item for item in applied}
    steps = [item_step(item, type) for item in live]
    mine: dict[str, Any] = {}
    for step, item in zip(steps, live, strict=True):
        # Duplicates of a live list are not merged with: the applied item takes the place of them all.
        mine[step] = ABSENT if step in mine else item
    result: list[Any] = []
    waiting = list(theirs)
    shared = [step for step in theirs if step in mine]
    done: set[str] = set()

    def take(step: str) -> None:
        result.append(merge_applied(mine.get(step, ABSENT), theirs[step], item_type))
        done.add(step)
        if shared and shared[0] == step:
            shared.pop(0)

    at = 0
    while at < len(live) or waiting:
        at_step = steps[at] if at < len(live) else None
        if at_step is not None and waiting:
            if at_step == waiting[0]:
                take(waiting.pop(0))
                at += 1
                continue
            if at_step in theirs and shared and shared[0] != at_step:
                at += 1
                continue
        if at_step is not None and at_step not in theirs:
            result.append(live[at])
            at += 1
            continue
        if at_step in done:
            at += 1
        if waiting:
            take(waiting.pop(0))
    return result


def remove_fields(value: Any, fields: FieldSet, type: Type) -> Any:
    """The value without these fields. Something that loses all it had becomes null, as upstream leaves it."""
    if isinstance(value, dict):
        return _object_without(value, fields, type)
    if isinstance(value, list):
        return _list_without(value, fields, type)
    return value


def _object_without(value: dict[str, Any], fields: FieldSet, type: Type) -> dict[str, Any] | None:
    if not is_granular(value, type):
        return None
    result = {}
    for key, inner in value.items():
        node = fields.get(f"f:{key}")
        if node is None:
            result[key] = inner
        elif not is_member(node):
            result[key] = remove_fields(inner, node, child_type(type, key))
    return result or None


def _list_without(value: list[Any], fields: FieldSet, type: Type) -> list[Any] | None:
    if not is_granular(value, type):
        return None
    result = []
    for item in value:
        node = fields.get(item_step(item, type))
        if node is None:
            result.append(item)
        elif not is_member(node):
            result.append(remove_fields(item, node, type.items or ANY))
    return result or None
