"""What to do about a volume: its phase, and what happens when its claim is deleted."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.volume import messages
from torchyard.core.events import Event
from torchyard.core.volume.bind import set_volume_phase
from torchyard.core.volume.view import VOLUME, VolumeDecision, Write, annotations_of, phase


@dataclass(frozen=True, slots=True)
class VolumeView:
    """A volume, and the claim in its claimRef if that exists."""

    volume: Object
    claim: Object | None = None


def decide_volume(view: VolumeView) -> VolumeDecision:
    decision = VolumeDecision()
    volume, claim = view.volume, view.claim
    reference = volume["spec"].get("claimRef")
    if not reference or not reference.get("uid"):
        set_volume_phase(volume, "Available", decision)  # available, or reserved for a claim that does not exist yet
    elif claim is None or claim["metadata"]["uid"] != reference["uid"]:
        _release(volume, decision)
    elif not claim["spec"].get("volumeName"):
        pass  # half bound: the claim's pass completes it
    elif claim["spec"]["volumeName"] == volume["metadata"]["name"]:
        set_volume_phase(volume, "Bound", decision)
    elif messages.PROVISIONED_BY in annotations_of(volume) and _reclaim_policy(volume) == "Delete":
        _release(volume, decision)  # provisioned for a claim that is bound to another volume
    else:
        _unbind(volume, decision)
    return decision


def _reclaim_policy(volume: Object) -> str:
    return volume["spec"].get("persistentVolumeReclaimPolicy") or "Retain"


def _release(volume: Object, decision: VolumeDecision) -> None:
    if phase(volume) == "Failed":
        return
    policy, message = _reclaim_policy(volume), ""
    if policy == "Delete" and messages.PROVISIONED_BY not in annotations_of(volume):
        message = messages.no_deleter(volume["metadata"]["name"])
        event = Event("Warning", messages.FAILED_DELETE, message)
    elif policy == "Recycle":
        message = messages.RECYCLE
        event = Event("Warning", messages.FAILED_RECYCLE, message)
    if not message:
        set_volume_phase(volume, "Released", decision)
        return
    set_volume_phase(volume, "Failed", decision, message)
    decision.events.append(event)


def _unbind(volume: Object, decision: VolumeDecision) -> None:
    """The claim is bound to another volume. A reservation by the user stays, without its uid."""
    spec, metadata = dict(volume["spec"]), dict(volume["metadata"])
    if messages.BOUND_BY_CONTROLLER in annotations_of(volume):
        del spec["claimRef"]
        annotations = dict(annotations_of(volume))
        del annotations[messages.BOUND_BY_CONTROLLER]
        metadata["annotations"] = annotations
    else:
        spec["claimRef"] = {
            key: value for key, value in spec["claimRef"].items() if key not in ("uid", "resourceVersion")
        }
    decision.writes.append(Write(VOLUME, {**volume, "metadata": metadata, "spec": spec}))
    set_volume_phase(volume, "Available", decision)
