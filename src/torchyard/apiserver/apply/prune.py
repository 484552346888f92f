"""Removes the fields that an applier owned before and no longer applies."""

from __future__ import annotations

from functools import reduce

from torchyard.api.objects import Object
from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.fieldset import FieldSet, difference, intersection, union
from torchyard.apiserver.apply.merge import remove_fields
from torchyard.apiserver.apply.to_fieldset import applied_fields, with_named_fields


def prune_unapplied(merged: Object, last: FieldSet, owned: list[FieldSet], type: Type) -> Object:
    """`merged` without the fields of `last`, the applier's previous set, that no manager in `owned` owns.

    Fields of other managers stay, with the objects around them; so do fields without a manager.
    """
    owned_by_any: FieldSet = reduce(union, owned)
    if not difference(last, owned_by_any):
        return merged
    last_named = with_named_fields(last, type)
    present = _present(merged, type)
    rest = remove_fields(merged, last_named, type) or {}
    retained = union(_present(rest, type), with_named_fields(owned_by_any, type))
    rest = remove_fields(merged, difference(present, retained), type) or {}
    removed = intersection(difference(present, _present(rest, type)), last_named)
    return remove_fields(merged, removed, type) or {}


def _present(obj: Object, type: Type) -> FieldSet:
    return with_named_fields(applied_fields(obj, type), type)
