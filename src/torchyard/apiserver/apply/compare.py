"""The fields that differ between two versions of an object."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.fieldset import FieldSet, difference_below, union
from torchyard.apiserver.apply.path_elements import item_step
from torchyard.apiserver.apply.to_fieldset import LEAF, created_fields
from torchyard.apiserver.apply.values import ABSENT, ANY, child_type


class Comparison(NamedTuple):
    added: FieldSet
    modified: FieldSet
    removed: FieldSet

    def without(self, fields: FieldSet) -> Comparison:
        """The comparison without these fields and all below them."""
        added, modified, removed = self
        for step in fields:
            if step in added or step in modified or step in removed:
                return Comparison(*[difference_below(part, fields) for part in self])
        return self

    @property
    def set_now(self) -> FieldSet:
        return union(self.added, self.modified)


# A comparison below one step: None without a difference, {} for the value itself.
_Part = FieldSet | None
_Parts = tuple[_Part, _Part, _Part]
_MODIFIED: Final[_Parts] = (None, LEAF, None)


def compare(old: dict[str, Any], new: dict[str, Any], type: Type) -> Comparison:
    """The fields that are added, modified and removed from `old` to `new`."""
    added, modified, removed = _compare_values(old, new, type)
    return Comparison(added or {}, modified or {}, removed or {})


def _compare_values(old: Any, new: Any, type: Type) -> _Parts:
    """Compare two values that are known to differ."""
    if type.shape == "list":
        if type.list_type == "atomic":
            return _MODIFIED
        before, after = _items(old, type), _items(new, type)
        return _members(before, after, type) if before or after else _MODIFIED
    if type.atomic_map or type.shape not in ("object", "map", "any"):
        return _MODIFIED
    if old.__class__ is dict and new.__class__ is dict:
        return _members(old, new, type)
    before = old if isinstance(old, dict) else {}
    after = new if isinstance(new, dict) else {}
    if not before and not after:
        return _MODIFIED
    added, modified, removed = _members(before, after, type)
    if old is not None and new is not None:
        # Free-form JSON changed its kind: fields are added or removed, and the value itself is modified.
        modified = LEAF
    return added, modified, removed


def _members(old: dict[str, Any], new: dict[str, Any], type: Type) -> _Parts:
    """Compare the fields of two objects, or the items of two lists by their steps."""
    added: FieldSet = {}
    modified: FieldSet = {}
    removed: FieldSet = {}
    item_type = type.items or ANY if type.shape == "list" else None
    for key, before in old.items():
        after = new.get(key, ABSENT)
        if before is after or before == after:
            continue
        step = "f:" + key if item_type is None else key
        if before.__class__ is str and after.__class__ is str:
            modified[step] = LEAF
            continue
        inner = item_type or child_type(type, key)
        if after is ABSENT:
            removed[step] = created_fields(before, inner)
        elif (before.__class__ is tuple) is (after.__class__ is tuple):
            inner_added, inner_modified, inner_removed = _compare_values(before, after, inner)
            if inner_added is not None:
                added[step] = inner_added
            if inner_modified is not None:
                modified[step] = inner_modified
            if inner_removed is not None:
                removed[step] = inner_removed
        else:
            # Items with the same step become distinct, or the reverse: a leaf is replaced by its parts.
            added[step] = created_fields(after, inner)
            removed[step] = created_fields(before, inner)
    for key, after in new.items():
        if key not in old:
            added["f:" + key if item_type is None else key] = created_fields(after, item_type or child_type(type, key))
    return added or None, modified or None, removed or None


def _items(value: Any, type: Type) -> dict[str, Any]:
    """The items of an associative list by their steps; items with the same step as a tuple, which is a leaf."""
    by_step: dict[str, Any] = {}
    shared: dict[str, list[Any]] = {}
    for item in value if isinstance(value, list) else ():
        step = item_step(item, type)
        if step in by_step:
            shared.setdefault(step, [by_step[step]]).append(item)
        else:
            by_step[step] = item
    for step, items in shared.items():
        by_step[step] = tuple(items)
    return by_step
