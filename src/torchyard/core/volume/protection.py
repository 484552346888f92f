"""Finalizers that protect claims and volumes in use from deletion."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.volume.admission import CLAIM_PROTECTION, VOLUME_PROTECTION
from torchyard.core.volume.view import claims_of, phase


def claim_is_used(claim: Object, pods: Iterable[Object]) -> bool:
    """Whether a scheduled pod uses the claim, even a finished one.

    An unscheduled pod cannot start with a terminating claim.
    """
    name = claim["metadata"]["name"]
    return any(pod["spec"].get("nodeName") and name in claims_of(pod).values() for pod in pods)


def volume_is_used(volume: Object) -> bool:
    return phase(volume) == "Bound"


def unprotect_claim(claim: Object, pods: Iterable[Object]) -> Object | None:
    """The claim without its protection finalizer, if it is terminating and unused; None otherwise."""
    return _without(claim, CLAIM_PROTECTION) if is_terminating(claim) and not claim_is_used(claim, pods) else None


def unprotect_volume(volume: Object) -> Object | None:
    return _without(volume, VOLUME_PROTECTION) if is_terminating(volume) and not volume_is_used(volume) else None


def _without(obj: Object, finalizer: str) -> Object | None:
    remaining = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
    if len(remaining) == len(obj["metadata"].get("finalizers") or ()):
        return None
    return {**obj, "metadata": {**obj["metadata"], "finalizers": remaining}}
