"""JSON merge patch (RFC 7386), the other way round: what to send so that one object becomes another."""

from __future__ import annotations

from torchyard.api.objects import Object


def merge_patch(old: Object, new: Object) -> Object:
    """What makes `new` of `old`, and nothing more. A patch cannot say null: no field of `new` may be that."""
    patch: Object = dict.fromkeys(old.keys() - new.keys())
    for name, after in new.items():
        before = old.get(name)
        if before.__class__ is dict and after.__class__ is dict:
            if inner := merge_patch(before, after):
                patch[name] = inner
        elif before != after:
            patch[name] = after
    return patch
