"""Limits of local storage: whether a pod must be evicted (the kubelet's localStorageEviction)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.api.pod.totals import pod_total
from torchyard.core.pod.view import main_containers

EPHEMERAL_STORAGE = "ephemeral-storage"


@dataclass(frozen=True, slots=True)
class StorageUsage:
    """Bytes on disk: of each container's log and writable layer, and of each emptyDir volume."""

    containers: Mapping[str, int] = field(default_factory=dict)
    volumes: Mapping[str, int] = field(default_factory=dict)


def has_storage_limits(pod: Object) -> bool:
    return bool(_volume_limits(pod)) or EPHEMERAL_STORAGE in pod_total(pod["spec"], "limits")


def eviction_message(pod: Object, usage: StorageUsage) -> str:
    """Why the pod is evicted; empty if it stays. In the kubelet's order: volumes, the whole pod, containers."""
    for name, limit in _volume_limits(pod).items():
        if usage.volumes.get(name, 0) > quantity.parse(limit).value > 0:
            return messages.empty_dir_exceeded(name, limit)
    total = pod_total(pod["spec"], "limits").get(EPHEMERAL_STORAGE)
    if total is not None and sum(usage.containers.values()) + sum(usage.volumes.values()) > total.value:
        return messages.pod_storage_exceeded(str(total))
    for container in main_containers(pod):
        text = ((container.get("resources") or {}).get("limits") or {}).get(EPHEMERAL_STORAGE)
        own_limit = quantity.parse(text) if text is not None else None
        if own_limit and usage.containers.get(container["name"], 0) > own_limit.value:
            return messages.container_storage_exceeded(container["name"], str(own_limit))
    return ""


def _volume_limits(pod: Object) -> dict[str, str]:
    return {
        volume["name"]: str(quantity.canonical(volume["emptyDir"]["sizeLimit"]))
        for volume in pod["spec"].get("volumes") or ()
        if (volume.get("emptyDir") or {}).get("sizeLimit")
    }
