"""Annotations of claims and volumes, and the reasons and messages of their controllers."""

from __future__ import annotations

from collections.abc import Sequence

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
OLD_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONER_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
# On a StorageClass: aliases, used where no class of that name exists; `*` stands for every name.
ALIASES = "torchyard.dev/aliases"
# A class whose volumes are created by hand.
NO_PROVISIONER = "kubernetes.io/no-provisioner"
YES = "yes"

FAILED_BINDING = "FailedBinding"
PROVISIONING_FAILED = "ProvisioningFailed"
MISMATCH = "VolumeMismatch"
LOST = "ClaimLost"
MISBOUND = "ClaimMisbound"
ALIAS_USED = "StorageClassAlias"
PROVISIONING, PROVISIONING_SUCCEEDED = "Provisioning", "ProvisioningSucceeded"
RESIZING, RESIZE_SUCCESSFUL = "Resizing", "VolumeResizeSuccessful"
FAILED_DELETE, FAILED_RECYCLE = "VolumeFailedDelete", "VolumeFailedRecycle"

RESIZED = "Resize volume succeeded"
NO_BLOCK_DEVICE = "a directory cannot be a block device; use volumeMode Filesystem"
NO_SELECTOR = "claim Selector is not supported; a volume is created for the claim"
NO_DATA_SOURCE = "a volume cannot be created from another one here; leave out dataSource and dataSourceRef"

NO_VOLUME = "no persistent volumes available for this claim and no storage class is set"
LOST_REFERENCE = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
LOST_VOLUME = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
TWO_CLAIMS = "Two claims are bound to the same volume, this one is bound incorrectly"

TOO_SMALL = "requested PV is too small"
OTHER_CLASS = "storageClassName does not match"
OTHER_ATTRIBUTES = "VolumeAttributesClassName does not match"
OTHER_MODE = "incompatible volumeMode"
OTHER_ACCESS = "incompatible accessMode"

RECYCLE = "the Recycle reclaim policy is not supported; use Retain or Delete"

UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
NONE_ON_NODE = "node(s) didn't find available persistent volumes to bind"
AFFINITY_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
ONE_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


def mismatch(volume: str, why: str) -> str:
    return f'Cannot bind to requested volume "{volume}": {why}'


def taken(volume: str) -> str:
    return f'volume "{volume}" already bound to a different claim.'


def no_deleter(volume: str) -> str:
    return f'error getting deleter volume plugin for volume "{volume}": no deletable volume plugin matched'


def no_class(name: str) -> str:
    return f'storageclass.storage.k8s.io "{name}" not found'


def no_provisioner(name: str) -> str:
    return f"no volume plugin matched name: {name}"


def waiting(pods: Sequence[str]) -> tuple[str, str]:
    """Return reason and message for a claim with volumeBindingMode WaitForFirstConsumer."""
    if not pods:
        return "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
    which = f"pod {pods[0]}" if len(pods) == 1 else f"pods {','.join(pods)}"
    return "WaitForPodScheduled", f"waiting for {which} to be scheduled"


def external(provisioner: str) -> tuple[str, str]:
    return "ExternalProvisioning", (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
        "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
        "correctly registered."
    )


def alias_used(name: str, storage_class: str) -> str:
    return f'storage class "{name}" does not exist; using "{storage_class}", which has it as an alias'


def claim_missing(name: str) -> str:
    return f'persistentvolumeclaim "{name}" not found'


def not_the_pods(claim: str, pod: str) -> str:
    return f'PVC "{claim}" was not created for pod "{pod}" (pod is not owner)'


def claim_going(name: str) -> str:
    return f'persistentvolumeclaim "{name}" is being deleted'


def claim_lost(name: str, volume: str) -> str:
    return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'


def provisioning(namespace: str, claim: str) -> str:
    return f'creating a directory for claim "{namespace}/{claim}"'


def provisioned(volume: str) -> str:
    return f"Successfully provisioned volume {volume}"


def provisioning_failed(storage_class: str, why: str) -> str:
    return f'failed to provision volume with StorageClass "{storage_class}": {why}'


def resizing(volume: str) -> str:
    return f"External resizer is resizing volume {volume}"


def foreign_directory(path: str) -> str:
    return f"{path} was not created for this volume"
