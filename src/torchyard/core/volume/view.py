"""Helpers to read claims, volumes and classes, and the decision about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.volume import messages
from torchyard.api.volume.admission import CLASS_ANNOTATION
from torchyard.core.events import Event

CLAIM, VOLUME = "PersistentVolumeClaim", "PersistentVolume"


@dataclass(frozen=True, slots=True)
class Write:
    """An object to update, or only its status."""

    kind: str
    object: Object
    status: Object | None = None


@dataclass(slots=True)
class VolumeDecision:
    """Writes in order. After each of them the next pass can continue, if the process ends there."""

    writes: list[Write] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    delete: bool = False


def annotations_of(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def class_of(obj: Object) -> str:
    """The name of the storage class; empty if it is unset or empty, which match the same volumes."""
    return annotations_of(obj).get(CLASS_ANNOTATION) or obj["spec"].get("storageClassName") or ""


def names_class(claim: Object) -> bool:
    return CLASS_ANNOTATION in annotations_of(claim) or claim["spec"].get("storageClassName") is not None


def requested_size(claim: Object) -> quantity.Quantity:
    return quantity.parse(str(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0")))


def size(volume: Object) -> quantity.Quantity:
    return quantity.parse(str((volume["spec"].get("capacity") or {}).get("storage", "0")))


def access_modes(obj: Object) -> frozenset[str]:
    return frozenset(obj["spec"].get("accessModes") or ())


def volume_mode(obj: Object) -> str:
    return obj["spec"].get("volumeMode") or "Filesystem"


def attributes_class(obj: Object) -> str:
    return obj["spec"].get("volumeAttributesClassName") or ""


def phase(obj: Object) -> str:
    return (obj.get("status") or {}).get("phase") or ""


def candidate_keys(volume: Object) -> list[str]:
    """By which claims find a volume: the claim that it is for, or the class while it is for none."""
    reference = volume["spec"].get("claimRef")
    if reference:
        return [f"claim {reference.get('namespace', '')}/{reference.get('name', '')}"]
    return [f"class {class_of(volume)}"]


def wanted_keys(claim: Object) -> list[str]:
    """The keys of the volumes that could serve a claim, as `candidate_keys` writes them."""
    metadata = claim["metadata"]
    return [f"claim {metadata['namespace']}/{metadata['name']}", f"class {class_of(claim)}"]


def class_names(storage_class_object: Object) -> set[str]:
    """The names that stand for a class: its own and its aliases; `*` stands for every name."""
    aliases = annotations_of(storage_class_object).get(messages.ALIASES, "").split(",")
    return {storage_class_object["metadata"]["name"], *(alias.strip() for alias in aliases)} - {""}


def is_for(volume: Object, claim: Object) -> bool:
    """Whether the volume's claimRef refers to this claim: by name, and by uid once it is set."""
    reference, metadata = volume["spec"].get("claimRef"), claim["metadata"]
    if not reference:
        return False
    same = (reference.get("namespace", ""), reference.get("name", "")) == (metadata["namespace"], metadata["name"])
    return same and reference.get("uid", "") in ("", metadata["uid"])


def storage_class(name: str, classes: Iterable[Object]) -> tuple[Object | None, bool]:
    """The class of this name, and whether the name is an alias that a class lists in its annotations."""
    by_name = sorted(classes, key=lambda candidate: str(candidate["metadata"]["name"]))
    for candidate in by_name:
        if candidate["metadata"]["name"] == name:
            return candidate, False
    for candidate in by_name:
        aliases = {alias.strip() for alias in annotations_of(candidate).get(messages.ALIASES, "").split(",")}
        if name and (name in aliases or "*" in aliases):
            return candidate, True
    return None, False


def waits_for_consumer(storage_class_object: Object | None) -> bool:
    return storage_class_object is not None and storage_class_object.get("volumeBindingMode") == "WaitForFirstConsumer"


def claims_of(pod: Object) -> dict[str, str]:
    """The claims of a pod by volume name. The claim of an ephemeral volume is named after pod and volume."""
    claims = {}
    for volume in pod["spec"].get("volumes") or ():
        if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            claims[volume["name"]] = claim
        elif volume.get("ephemeral"):
            claims[volume["name"]] = f"{pod['metadata']['name']}-{volume['name']}"
    return claims
