"""Which fields differ between two versions of an object."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchyard.api.schema.types import Type
from torchyard.apiserver.verbs.apply.elements import item_step
from torchyard.apiserver.verbs.apply.extract import created_fields
from torchyard.apiserver.verbs.apply.fieldset import FieldSet, difference_below, union
from torchyard.apiserver.verbs.apply.values import ANY, child


class Comparison(NamedTuple):
    added: FieldSet
    modified: FieldSet
    removed: FieldSet

    def without(self, fields: FieldSet) -> Comparison:
        """Leave out these fields and all beneath them."""
        if not fields:
            return self
        added, modified, removed = self
        return Comparison(
            difference_below(added, fields), difference_below(modified, fields), difference_below(removed, fields)
        )

    @property
    def set_now(self) -> FieldSet:
        return union(self.added, self.modified)


# The same, beneath one step: None where nothing differs, {} for the value itself.
_Part = FieldSet | None
_Parts = tuple[_Part, _Part, _Part]
_Noted = tuple[FieldSet, FieldSet, FieldSet]


def compare(old: dict[str, Any], new: dict[str, Any], type: Type) -> Comparison:
    """What is added, modified and removed on the way from `old` to `new`."""
    if old == new:
        return Comparison({}, {}, {})
    added, modified, removed = _differing(old, new, type)
    return Comparison(added or {}, modified or {}, removed or {})


def _differing(old: Any, new: Any, type: Type) -> _Parts:
    """How two values differ that are known to."""
    if type.shape == "list":
        if type.list_type == "atomic":
            return (None, {}, None)
        before, after = _items(old, type), _items(new, type)
        return _lists(before, after, type) if before or after else (None, {}, None)
    if type.atomic_map or type.shape not in ("object", "map", "any"):
        return (None, {}, None)
    old_fields = old if isinstance(old, dict) else {}
    new_fields = new if isinstance(new, dict) else {}
    if not old_fields and not new_fields:
        return (None, {}, None)
    added, modified, removed = _objects(old_fields, new_fields, type)
    if not isinstance(old, dict | None) or not isinstance(new, dict | None):
        # Free-form JSON changed its kind: the fields of the one went or came, and the value itself is another.
        modified = {}
    return added, modified, removed


def _objects(old: dict[str, Any], new: dict[str, Any], type: Type) -> _Parts:
    parts: _Noted = ({}, {}, {})
    for key, before in old.items():
        if key in new:
            after = new[key]
            if before != after:
                _note(parts, f"f:{key}", _differing(before, after, child(type, key)))
        else:
            parts[2][f"f:{key}"] = created_fields(before, child(type, key))
    for key, after in new.items():
        if key not in old:
            parts[0][f"f:{key}"] = created_fields(after, child(type, key))
    return parts[0] or None, parts[1] or None, parts[2] or None


def _lists(old: dict[str, list[Any]], new: dict[str, list[Any]], type: Type) -> _Parts:
    parts: _Noted = ({}, {}, {})
    item_type = type.items or ANY
    for step in {**old, **new}:
        before, after = old.get(step, []), new.get(step, [])
        if before == after:
            continue
        match len(before), len(after):
            case 0, 1:
                parts[0][step] = created_fields(after[0], item_type)
            case 1, 0:
                parts[2][step] = created_fields(before[0], item_type)
            case 1, 1:
                _note(parts, step, _differing(before[0], after[0], item_type))
            case _:
                _duplicates(parts, step, before, after, item_type)
    return parts[0] or None, parts[1] or None, parts[2] or None


def _duplicates(parts: _Noted, step: str, before: list[Any], after: list[Any], type: Type) -> None:
    """Items that share their key are one leaf; becoming distinct, or ceasing to be, replaces the leaf by its parts."""
    added, modified, removed = parts
    if len(before) > 1 and len(after) > 1:
        modified[step] = {}
    elif len(before) > 1:
        removed[step] = {}
        if after:
            added[step] = created_fields(after[0], type)
    else:
        added[step] = {}
        if before:
            removed[step] = created_fields(before[0], type)


def _note(parts: _Noted, step: str, found: _Parts) -> None:
    for part, fields in zip(parts, found, strict=True):
        if fields is not None:
            part[step] = fields


def _items(value: Any, type: Type) -> dict[str, list[Any]]:
    """The items of an associative list by their steps."""
    found: dict[str, list[Any]] = {}
    for item in value if isinstance(value, list) else ():
        found.setdefault(item_step(item, type), []).append(item)
    return found
