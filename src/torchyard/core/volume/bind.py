"""The four writes that bind a volume and a claim; writes already done are left out."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.volume import messages
from torchyard.core.events import Event
from torchyard.core.volume.view import (
    CLAIM,
    VOLUME,
    VolumeDecision,
    Write,
    annotations_of,
    attributes_class,
    phase,
)


def bind(volume: Object, claim: Object, decision: VolumeDecision) -> None:
    """Write the volume, its phase, the claim and its phase. After an interruption the next pass writes the rest."""
    referring = reserve(volume, claim)
    if referring is not volume:
        decision.writes.append(Write(VOLUME, referring))
    set_volume_phase(volume, "Bound", decision)
    named = _with_volume_name(claim, volume)
    if named is not claim:
        decision.writes.append(Write(CLAIM, named))
    status = _bound_status(claim, volume)
    if status != (claim.get("status") or {}):
        decision.writes.append(Write(CLAIM, claim, status))


def reserve(volume: Object, claim: Object) -> Object:
    """The volume with a complete claimRef.

    It is annotated as bound by the controller unless the user had reserved it.
    """
    reference, metadata = volume["spec"].get("claimRef") or {}, claim["metadata"]
    if reference.get("uid") == metadata["uid"]:
        return volume
    complete = {
        "apiVersion": "v1",
        "kind": CLAIM,
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }
    changed = {**volume, "spec": {**volume["spec"], "claimRef": complete}}
    return changed if reference else _annotate(changed, messages.BOUND_BY_CONTROLLER)


def _with_volume_name(claim: Object, volume: Object) -> Object:
    changed, name = claim, volume["metadata"]["name"]
    if claim["spec"].get("volumeName") != name:
        changed = _annotate({**claim, "spec": {**claim["spec"], "volumeName": name}}, messages.BOUND_BY_CONTROLLER)
    if messages.BIND_COMPLETED not in annotations_of(claim):
        changed = _annotate(changed, messages.BIND_COMPLETED)
    return changed


def _annotate(obj: Object, annotation: str) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "annotations": {**annotations_of(obj), annotation: messages.YES}}}


def _bound_status(claim: Object, volume: Object) -> Object:
    before = claim.get("status") or {}
    status = {**before, "phase": "Bound", "accessModes": volume["spec"].get("accessModes") or []}
    # The resizer updates the capacity of a bound claim, when its file system has grown.
    if before.get("phase") != "Bound" or "storage" not in (before.get("capacity") or {}):
        status["capacity"] = dict(volume["spec"].get("capacity") or {})
    if name := attributes_class(volume):
        status["currentVolumeAttributesClassName"] = name
    return status


def set_claim_phase(claim: Object, new_phase: str, decision: VolumeDecision, event: Event | None = None) -> None:
    """Set Pending or Lost, without access modes and capacity. The event is recorded when the phase changes."""
    before = claim.get("status") or {}
    status = {name: value for name, value in before.items() if name not in ("accessModes", "capacity")}
    status["phase"] = new_phase
    if status != before:
        decision.writes.append(Write(CLAIM, claim, status))
    if event is not None and phase(claim) != new_phase:
        decision.events.append(event)


def set_volume_phase(volume: Object, new_phase: str, decision: VolumeDecision, message: str = "") -> None:
    before = volume.get("status") or {}
    status = {name: value for name, value in before.items() if name not in ("message", "reason")}
    status["phase"] = new_phase
    if message:
        status["message"] = message
    if status != before:
        decision.writes.append(Write(VOLUME, volume, status))
