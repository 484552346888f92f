"""Merges an applied object into the live one, and removes fields from an object."""

from __future__ import annotations

from collections import deque
from typing import Any

from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.fieldset import FieldSet, is_member
from torchyard.apiserver.apply.path_elements import item_step
from torchyard.apiserver.apply.values import ABSENT, ANY, child_type, is_granular


def merge_applied(live: Any, applied: Any, type: Type) -> Any:
    """`live` with everything in `applied`. Nothing is removed, not even by a null for a granular live value."""
    if live is ABSENT:
        return applied
    if applied is ABSENT:
        return live
    if isinstance(live, dict) and is_granular(live, type) and (applied is None or isinstance(applied, dict)):
        return _merge_objects(live, applied or {}, type)
    if isinstance(live, list) and is_granular(live, type) and (applied is None or isinstance(applied, list)):
        return _merge_lists(live, applied or [], type)
    return applied


def _merge_objects(live: dict[str, Any], applied: dict[str, Any], type: Type) -> dict[str, Any]:
    result = dict(live)
    for key, value in applied.items():
        result[key] = merge_applied(live.get(key, ABSENT), value, child_type(type, key))
    return result


def _merge_lists(live: list[Any], applied: list[Any], type: Type) -> list[Any]:
    """Upstream's order: shared items as in the applied list; items only the live list has stay where they were."""
    item_type = type.items or ANY
    applied_by_step = {item_step(item, type): item for item in applied}
    steps = [item_step(item, type) for item in live]
    live_by_step: dict[str, Any] = {}
    for step, item in zip(steps, live, strict=True):
        # Duplicate live items are not merged: the applied item replaces them all.
        live_by_step[step] = ABSENT if step in live_by_step else item
    result: list[Any] = []
    waiting = deque(applied_by_step)
    shared = deque(step for step in applied_by_step if step in live_by_step)
    taken: set[str] = set()

    def take(step: str) -> None:
        result.append(merge_applied(live_by_step.get(step, ABSENT), applied_by_step[step], item_type))
        taken.add(step)
        if shared and shared[0] == step:
            shared.popleft()

    position = 0
    while position < len(live) or waiting:
        live_step = steps[position] if position < len(live) else None
        if live_step is not None and waiting:
            if live_step == waiting[0]:
                take(waiting.popleft())
                position += 1
                continue
            if live_step in applied_by_step and shared and shared[0] != live_step:
                position += 1
                continue
        if live_step is not None and live_step not in applied_by_step:
            result.append(live[position])
            position += 1
            continue
        if live_step in taken:
            position += 1
        if waiting:
            take(waiting.popleft())
    return result


def remove_fields(value: Any, fields: FieldSet, type: Type) -> Any:
    """The value without these fields. As upstream, a value that loses all its members becomes null."""
    if isinstance(value, dict):
        return _remove_from_object(value, fields, type)
    if isinstance(value, list):
        return _remove_from_list(value, fields, type)
    return value


def _remove_from_object(value: dict[str, Any], fields: FieldSet, type: Type) -> dict[str, Any] | None:
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


def _remove_from_list(value: list[Any], fields: FieldSet, type: Type) -> list[Any] | None:
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
