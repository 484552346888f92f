"""What controllers of every kind read from an object's metadata, and write into it."""

from __future__ import annotations

from torchyard.api.objects import Object


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
