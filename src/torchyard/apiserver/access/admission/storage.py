"""Small rules for storage and ingresses: default classes, protection from deletion in use, resizing."""

from __future__ import annotations

from torchyard.api import quantity
from torchyard.api.volume.columns import BETA_CLASS, DEFAULT_CLASS
from torchyard.apiserver.access.admission.attributes import Attributes
from torchyard.apiserver.access.lookup import Object

STORAGE = "storage.k8s.io"
NETWORKING = "networking.k8s.io"
DEFAULT_INGRESS = ("ingressclass.kubernetes.io/is-default-class",)
OLD_INGRESS_CLASS = "kubernetes.io/ingress.class"
PROTECTION = {
    ("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
    ("", "persistentvolumes"): "kubernetes.io/pv-protection",
}


def set_storage_class(attributes: Attributes) -> None:
    """DefaultStorageClass: a claim that names none gets the default one."""
    if not attributes.is_for("persistentvolumeclaims"):
        return
    spec = attributes.new["spec"]
    if spec.get("storageClassName") is None and BETA_CLASS not in _annotations(attributes.new):
        name = _default(attributes, STORAGE, "storageclasses", DEFAULT_CLASS)
        if name:
            spec["storageClassName"] = name


def set_ingress_class(attributes: Attributes) -> None:
    """DefaultIngressClass: an ingress that names none gets the default one."""
    if not attributes.is_for("ingresses", NETWORKING):
        return
    spec = attributes.new.setdefault("spec", {})
    if spec.get("ingressClassName") is None and OLD_INGRESS_CLASS not in _annotations(attributes.new):
        name = _default(attributes, NETWORKING, "ingressclasses", DEFAULT_INGRESS)
        if name:
            spec["ingressClassName"] = name


def _annotations(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _default(attributes: Attributes, group: str, resource: str, marks: tuple[str, ...]) -> str:
    """The name of the newest class that is marked as default; of equally new ones the first by name."""
    marked = [
        one["metadata"]
        for one in attributes.lookup.list(group, resource)
        if any(_annotations(one).get(mark) == "true" for mark in marks)
    ]
    marked.sort(key=lambda one: str(one["name"]))
    newest: Object = max(marked, key=lambda one: str(one.get("creationTimestamp", "")), default={"name": ""})
    name: str = newest["name"]
    return name


def protect(attributes: Attributes) -> None:
    """StorageObjectInUseProtection: a finalizer keeps volumes and claims until nobody uses them."""
    finalizer = PROTECTION.get((attributes.group, attributes.resource))
    if finalizer is None or attributes.operation != "CREATE" or attributes.subresource:
        return
    metadata = attributes.new["metadata"]
    finalizers = metadata.get("finalizers") or []
    if finalizer not in finalizers:
        metadata["finalizers"] = [*finalizers, finalizer]


def check_resize(attributes: Attributes) -> None:
    """PersistentVolumeClaimResize: a claim grows only if its class lets it."""
    if not attributes.is_for("persistentvolumeclaims", operations=("UPDATE",)) or attributes.old is None:
        return
    new, old = attributes.new["spec"], attributes.old["spec"]
    if quantity.compare(_size(new), _size(old)) <= 0:
        return
    if (attributes.old.get("status") or {}).get("phase") != "Bound":
        raise attributes.refusal("Only bound persistent volume claims can be expanded")
    name = _annotations(attributes.new).get(BETA_CLASS) or new.get("storageClassName")
    found = attributes.lookup.get(STORAGE, "storageclasses", "", name) if name else None
    if found is None or not found.get("allowVolumeExpansion"):
        raise attributes.refusal(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must"
            " support resize"
        )


def _size(spec: Object) -> str:
    size: str = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "0")
    return size
