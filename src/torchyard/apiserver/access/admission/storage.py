"""The small plugins for storage and ingresses: default classes, protection while in use, resizing."""

from __future__ import annotations

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.volume.admission import CLASS_ANNOTATION, check_expansion, newest_default, protect, set_default_class
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

STORAGE = "storage.k8s.io"
NETWORKING = "networking.k8s.io"
DEFAULT_INGRESS = "ingressclass.kubernetes.io/is-default-class"
OLD_INGRESS_CLASS = "kubernetes.io/ingress.class"
PROTECTED = (("", "persistentvolumeclaims"), ("", "persistentvolumes"), (STORAGE, "volumeattributesclasses"))


def set_storage_class(attributes: AdmissionAttributes) -> None:
    """DefaultStorageClass: a claim without a class gets the default one."""
    if attributes.is_for("persistentvolumeclaims"):
        set_default_class(attributes.new, attributes.lister.list(STORAGE, "storageclasses"))


def set_ingress_class(attributes: AdmissionAttributes) -> None:
    """DefaultIngressClass: an ingress without a class gets the default one."""
    if not attributes.is_for("ingresses", NETWORKING):
        return
    spec = attributes.new.setdefault("spec", {})
    if spec.get("ingressClassName") is not None or OLD_INGRESS_CLASS in _annotations(attributes.new):
        return
    classes = attributes.lister.list(NETWORKING, "ingressclasses")
    chosen = newest_default(
        ingress_class for ingress_class in classes if _annotations(ingress_class).get(DEFAULT_INGRESS) == "true"
    )
    if chosen is not None:
        spec["ingressClassName"] = chosen["metadata"]["name"]


def _annotations(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def protect_in_use(attributes: AdmissionAttributes) -> None:
    """StorageObjectInUseProtection: a finalizer keeps volumes and claims while they are in use."""
    if (attributes.group, attributes.resource) not in PROTECTED or attributes.subresource:
        return
    if attributes.operation == "CREATE":
        protect(attributes.new)


def check_resize(attributes: AdmissionAttributes) -> None:
    """PersistentVolumeClaimResize: a claim can grow only if its class allows expansion."""
    if not attributes.is_for("persistentvolumeclaims", operations=("UPDATE",)) or attributes.old is None:
        return
    new, old = attributes.new, attributes.old
    if quantity.compare(_size(new), _size(old)) > 0:
        name = _annotations(new).get(CLASS_ANNOTATION) or new["spec"].get("storageClassName")
        check_expansion(new, old, attributes.lister.get(STORAGE, "storageclasses", "", name) if name else None)


def _size(claim: Object) -> str:
    size: str = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0")
    return size
