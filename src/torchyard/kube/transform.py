"""What a live copy need not transform of an object: managed fields, and the same words thousands of times."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torchyard.api.objects import Object


def strip_and_intern(obj: Object) -> Object:
    """The object itself, without managedFields and with texts that many objects share.

    Of thousands of pods every third byte is a text that another pod has too. Of metadata only some parts are: a name
    and a uid are everybody's own.
    """
    _share_metadata(strip_managed_fields(obj)["metadata"])
    for name, part in obj.items():
        if part.__class__ is str:
            obj[name] = _same(part)
        elif name != "metadata" and (part.__class__ is dict or part.__class__ is list):
            _share(part)
    return obj


def strip_managed_fields(obj: Object) -> Object:
    """The object itself, without managedFields: where the texts are few, or somebody else sees to them."""
    obj["metadata"].pop("managedFields", None)
    return obj


def _share_metadata(metadata: Object) -> None:
    for name in ("labels", "ownerReferences"):
        if part := metadata.get(name):
            _share(part)
    for name in ("namespace", "creationTimestamp"):
        if part := metadata.get(name):
            metadata[name] = _same(part)


def _share(part: Any) -> None:
    for place, inner in part.items() if part.__class__ is dict else enumerate(part):
        if inner.__class__ is str:
            part[place] = _same(inner)
        elif inner.__class__ is dict or inner.__class__ is list:
            _share(inner)


@lru_cache(maxsize=8192)
def _same(text: str) -> str:
    """The first of equal texts."""
    return text
