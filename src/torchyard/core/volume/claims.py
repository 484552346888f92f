"""What to do about a claim, as kube-controller-manager's binder does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.volume import messages
from torchyard.api.volume.admission import default_class
from torchyard.core.events import Event
from torchyard.core.volume.bind import bind, set_claim_phase
from torchyard.core.volume.match import best_volume, mismatch
from torchyard.core.volume.view import (
    CLAIM,
    VolumeDecision,
    Write,
    annotations_of,
    class_of,
    is_for,
    names_class,
    storage_class,
    waits_for_consumer,
)


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A claim, the volume that it names, and all volumes and classes."""

    claim: Object
    named: Object | None = None
    volumes: Sequence[Object] = ()
    classes: Sequence[Object] = ()
    waiting_pods: Sequence[str] = ()  # pods that use the claim and have no node yet


def decide_claim(view: ClaimView) -> VolumeDecision:
    decision = VolumeDecision()
    if messages.BIND_COMPLETED in annotations_of(view.claim):
        _keep_bound(view, decision)
    elif is_terminating(view.claim):
        pass  # a terminating claim needs no volume
    elif view.claim["spec"].get("volumeName"):
        _bind_named(view, decision)
    else:
        _find_volume(view, decision)
    return decision


def _keep_bound(view: ClaimView, decision: VolumeDecision) -> None:
    claim, volume = view.claim, view.named
    if not claim["spec"].get("volumeName"):
        set_claim_phase(claim, "Lost", decision, Event("Warning", messages.LOST, messages.LOST_REFERENCE))
    elif volume is None:
        set_claim_phase(claim, "Lost", decision, Event("Warning", messages.LOST, messages.LOST_VOLUME))
    elif not volume["spec"].get("claimRef") or volume["spec"]["claimRef"].get("uid") == claim["metadata"]["uid"]:
        bind(volume, claim, decision)
    else:
        set_claim_phase(claim, "Lost", decision, Event("Warning", messages.MISBOUND, messages.TWO_CLAIMS))


def _bind_named(view: ClaimView, decision: VolumeDecision) -> None:
    """Bind the volume that the user named, which may not exist yet."""
    claim, volume = view.claim, view.named
    if volume is None:
        set_claim_phase(claim, "Pending", decision)
        return
    if is_for(volume, claim):
        bind(volume, claim, decision)
        return
    name = volume["metadata"]["name"]
    if volume["spec"].get("claimRef"):
        decision.events.append(Event("Warning", messages.FAILED_BINDING, messages.taken(name)))
    elif reason := mismatch(volume, claim):
        decision.events.append(Event("Warning", messages.MISMATCH, messages.mismatch(name, reason)))
    else:
        bind(volume, claim, decision)
        return
    set_claim_phase(claim, "Pending", decision)


def _find_volume(view: ClaimView, decision: VolumeDecision) -> None:
    claim = view.claim
    storage_class_object, by_alias = storage_class(class_of(claim), view.classes)
    delayed = waits_for_consumer(storage_class_object)
    volume = best_volume(claim, view.volumes, delayed=delayed)
    if volume is not None:
        bind(volume, claim, decision)
        return
    if not names_class(claim) and (default := default_class(view.classes)) is not None:
        name = default["metadata"]["name"]
        decision.writes.append(Write(CLAIM, {**claim, "spec": {**claim["spec"], "storageClassName": name}}))
        return
    if delayed and messages.SELECTED_NODE not in annotations_of(claim):
        decision.events.append(Event("Normal", *messages.waiting(view.waiting_pods)))
    elif class_of(claim):
        _ask_provisioner(claim, storage_class_object, decision, by_alias=by_alias)
    else:
        decision.events.append(Event("Normal", messages.FAILED_BINDING, messages.NO_VOLUME))
    set_claim_phase(claim, "Pending", decision)


def _ask_provisioner(
    claim: Object, storage_class_object: Object | None, decision: VolumeDecision, *, by_alias: bool
) -> None:
    """Name the provisioner in the claim's annotations; the provisioner acts on them."""
    name = class_of(claim)
    if storage_class_object is None:
        decision.events.append(Event("Warning", messages.PROVISIONING_FAILED, messages.no_class(name)))
        return
    provisioner = storage_class_object["provisioner"]
    if provisioner == messages.NO_PROVISIONER:
        decision.events.append(Event("Warning", messages.PROVISIONING_FAILED, messages.no_provisioner(provisioner)))
        return
    annotations = annotations_of(claim)
    if annotations.get(messages.PROVISIONER) != provisioner:
        both = {messages.PROVISIONER: provisioner, messages.OLD_PROVISIONER: provisioner}
        metadata = {**claim["metadata"], "annotations": {**annotations, **both}}
        decision.writes.append(Write(CLAIM, {**claim, "metadata": metadata}))
        if by_alias:
            stands_for = storage_class_object["metadata"]["name"]
            decision.events.append(Event("Normal", messages.ALIAS_USED, messages.alias_used(name, stands_for)))
    decision.events.append(Event("Normal", *messages.external(provisioner)))
