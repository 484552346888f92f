"""Taking out of an object what an applier owned before and does not apply any more."""

from __future__ import annotations

from functools import reduce

from torchyard.api.objects import Object
from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.fieldset import FieldSet, difference, intersection, union
from torchyard.apiserver.apply.merge import remove_fields
from torchyard.apiserver.apply.to_fieldset import applied_fields, with_named_fields


def prune_unapplied(merged: Object, last: FieldSet, owned: list[FieldSet], type: Type) -> Object:
    """`merged` without the fields in `last`, the applier's previous set, that nobody in `owned` has.

    What others own stays, with the objects around it; so does what nobody owns.
    """
    everybody: FieldSet = reduce(union, owned)
    if not difference(last, everybody):
        return merged
    last_named = with_named_fields(last, type)
    present = _present(merged, type)
    rest = remove_fields(merged, last_named, type) or {}
    kept = union(_present(rest, type), with_named_fields(everybody, type))
    rest = remove_fields(merged, difference(present, kept), type) or {}
    gone = intersection(difference(present, _present(rest, type)), last_named)
    return remove_fields(merged, gone, type) or {}


def _present(obj: Object, type: Type) -> FieldSet:
    return with_named_fields(applied_fields(obj, type), type)
