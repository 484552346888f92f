"""What controllers of every kind read from an object's metadata, and write into it."""

from __future__ import annotations

import re

from torchyard.api.objects import Object

_UID = re.compile(r"[0-9a-f-]{36}")


def is_terminating(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def controller_reference(owner: Object, api_version: str, kind: str) -> Object:
    """The owner reference of an object that the owner controls, and that is deleted with it."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Object) -> Object | None:
    """The owner reference to the controller of an object."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            controller: Object = reference
            return controller
    return None


def is_uid(text: str) -> bool:
    """Whether a text is a uid as servers assign them. The uid of an owner reference is whatever its author wrote."""
    return _UID.fullmatch(text) is not None
