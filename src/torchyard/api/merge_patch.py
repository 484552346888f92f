"""Computing a JSON merge patch (RFC 7386) from two objects."""

from __future__ import annotations

from torchyard.api.objects import Object


def merge_patch(old: Object, new: Object) -> Object:
    """Return the smallest patch that turns `old` into `new`, which must not contain null: a patch cannot express it."""
    patch: Object = dict.fromkeys(old.keys() - new.keys())
    for name, after in new.items():
        before = old.get(name)
        if before.__class__ is dict and after.__class__ is dict:
            if inner := merge_patch(before, after):
                patch[name] = inner
        elif before != after:
            patch[name] = after
    return patch
