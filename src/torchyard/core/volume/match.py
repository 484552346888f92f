"""The volume that fits a claim: the smallest sufficient one, among those with the fewest extra access modes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torchyard.api import selectors
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.volume import messages
from torchyard.core.volume.view import (
    access_modes,
    attributes_class,
    class_of,
    is_for,
    phase,
    requested_size,
    size,
    volume_mode,
)


def best_volume(
    claim: Object,
    volumes: Iterable[Object],
    *,
    delayed: bool = False,
    reachable: Callable[[Object], bool] = lambda _: True,
) -> Object | None:
    """A volume reserved for the claim wins. With WaitForFirstConsumer (`delayed`) only a reserved volume is taken."""
    usable = [volume for volume in volumes if _could_serve(volume, claim)]
    reserved = sorted((volume for volume in usable if is_for(volume, claim)), key=_order)
    if reserved or delayed:
        return reserved[0] if reserved else None
    free = [volume for volume in usable if _is_free_for(volume, claim) and reachable(volume)]
    return min(free, key=_order, default=None)


def _order(volume: Object) -> tuple[int, int, str]:
    """Fewest access modes first, then the smallest; the name makes the choice deterministic."""
    return len(access_modes(volume)), size(volume).nano, volume["metadata"]["name"]


def _could_serve(volume: Object, claim: Object) -> bool:
    if volume["spec"].get("claimRef") and not is_for(volume, claim):
        return False
    return (
        access_modes(claim) <= access_modes(volume)
        and size(volume) >= requested_size(claim)
        and volume_mode(volume) == volume_mode(claim)
        and attributes_class(volume) == attributes_class(claim)
        and not is_terminating(volume)
    )


def _is_free_for(volume: Object, claim: Object) -> bool:
    if phase(volume) != "Available" or class_of(volume) != class_of(claim):
        return False
    selector = claim["spec"].get("selector")
    return selector is None or selectors.from_object(selector).matches(volume["metadata"].get("labels") or {})


def mismatch(volume: Object, claim: Object) -> str:
    """Why a volume that the claim names cannot be bound to it; empty if it can. Labels are not checked then."""
    if requested_size(claim) > size(volume):
        return messages.TOO_SMALL
    if class_of(volume) != class_of(claim):
        return messages.OTHER_CLASS
    if attributes_class(volume) != attributes_class(claim):
        return messages.OTHER_ATTRIBUTES
    if volume_mode(volume) != volume_mode(claim):
        return messages.OTHER_MODE
    if not access_modes(claim) <= access_modes(volume):
        return messages.OTHER_ACCESS
    return ""
