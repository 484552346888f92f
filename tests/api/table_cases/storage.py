"""Volumes, claims, classes, CSI."""

from __future__ import annotations

from typing import Any

from torchyard.api.objects import Object


def claim(name: str, *, annotations: Object | None = None, status: Object | None = None, **more: Any) -> Object:
    terminating = more.pop("terminating", False)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **more}
    obj: Object = {"metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}
    return {**obj, **({"status": status} if status else {}), **({"terminating": True} if terminating else {})}


CLAIMS = [
    claim("pending"),
    claim("classy", storageClassName="fast", volumeMode="Block", volumeAttributesClassName="gold"),
    claim("annotated", annotations={"volume.beta.kubernetes.io/storage-class": "old"}),
    claim(
        "bound",
        volumeName="pv-1",
        storageClassName="",
        status={
            "phase": "Bound",
            "capacity": {"storage": "2048Mi"},
            "accessModes": ["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"],
        },
    ),
    claim("lost", volumeName="pv-2", status={"phase": "Lost"}),
    claim("terminating", terminating=True),
]


def volume(name: str, *, status: Object | None = None, **spec: Any) -> Object:
    terminating = spec.pop("terminating", False)
    body = {"capacity": {"storage": "1000Mi"}, "accessModes": ["ReadWriteOncePod"], "hostPath": {"path": "/x"}, **spec}
    obj: Object = {"metadata": {"name": name}, "spec": body}
    return {**obj, **({"status": status} if status else {}), **({"terminating": True} if terminating else {})}


VOLUMES = [
    volume("plain"),
    volume(
        "bound",
        persistentVolumeReclaimPolicy="Delete",
        storageClassName="fast",
        volumeMode="Block",
        claimRef={"namespace": "ns", "name": "c"},
        status={"phase": "Bound"},
    ),
    volume("failed", status={"phase": "Failed", "reason": "Broken", "message": "no"}),
    volume("terminating", terminating=True),
]
STORAGE: dict[str, list[Object]] = {
    "storageclasses": [
        {"metadata": {"name": "plain"}, "provisioner": "example.com/x"},
        {
            "metadata": {"name": "rich", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "example.com/x",
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
        },
    ],
    "volumeattributesclasses": [
        {"metadata": {"name": "gold"}, "driverName": "d.example.com", "parameters": {"a": "b"}}
    ],
    "volumeattachments": [
        {
            "metadata": {"name": "plain"},
            "spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
        },
        {
            "metadata": {"name": "attached"},
            "spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
            "status": {"attached": True},
        },
    ],
    "csidrivers": [
        {"metadata": {"name": "plain.example.com"}, "spec": {}},
        {
            "metadata": {"name": "rich.example.com"},
            "spec": {
                "attachRequired": False,
                "podInfoOnMount": True,
                "storageCapacity": True,
                "requiresRepublish": True,
                "tokenRequests": [{"audience": "a"}, {"audience": "b"}],
                "volumeLifecycleModes": ["Persistent", "Ephemeral"],
            },
        },
    ],
    "csinodes": [
        {
            "metadata": {"name": "n1"},
            "spec": {"drivers": [{"name": "a.example.com", "nodeID": "1", "topologyKeys": []}]},
        },
    ],
}
