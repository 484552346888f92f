"""Transforms of objects before they enter an informer's cache, to save memory: no managed fields, shared strings."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torchyard.api.objects import Object


def strip_and_intern(obj: Object) -> Object:
    """Drop managedFields and intern the strings that many objects share, in place.

    In a cache of thousands of pods a third of all bytes are strings that other pods have too. In metadata only some
    parts are shared: names and uids are unique.
    """
    _intern_metadata(strip_managed_fields(obj)["metadata"])
    for name, part in obj.items():
        if part.__class__ is str:
            obj[name] = _intern_string(part)
        elif name != "metadata" and (part.__class__ is dict or part.__class__ is list):
            _intern(part)
    return obj


def strip_managed_fields(obj: Object) -> Object:
    """Drop managedFields in place. For objects with few shared strings, or whose strings are already shared."""
    obj["metadata"].pop("managedFields", None)
    return obj


def _intern_metadata(metadata: Object) -> None:
    for name in ("labels", "ownerReferences"):
        if part := metadata.get(name):
            _intern(part)
    for name in ("namespace", "creationTimestamp"):
        if part := metadata.get(name):
            metadata[name] = _intern_string(part)


def _intern(part: Any) -> None:
    for key, inner in part.items() if part.__class__ is dict else enumerate(part):
        if inner.__class__ is str:
            part[key] = _intern_string(inner)
        elif inner.__class__ is dict or inner.__class__ is list:
            _intern(inner)


@lru_cache(maxsize=8192)
def _intern_string(text: str) -> str:
    """Return the first of equal strings."""
    return text
