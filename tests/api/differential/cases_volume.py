"""Cases of volumes, claims, storage classes and the CSI kinds."""

from __future__ import annotations

from typing import Any

from tests.api.differential.cases_service import of
from tests.api.differential.changes import both, set_
from tests.api.differential.verdict import Case

from torchyard.api.objects import Object

ONE: Object = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
SIZE: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
HOST: Object = {"hostPath": {"path": "/x"}}


def volume(**spec: Any) -> Object:
    return of("v1", "PersistentVolume", spec=spec)


def claim(annotations: Object | None = None, **spec: Any) -> Object:
    return of("v1", "PersistentVolumeClaim", annotations=annotations, spec=spec)


def storage(kind: str, /, **body: Any) -> Object:
    return of("storage.k8s.io/v1", kind, **body)


GOOD: dict[str, Object] = {
    "a volume": volume(**ONE, **HOST),
    "an odd amount": volume(capacity={"storage": "1000Mi"}, accessModes=["ReadWriteMany"], **HOST),
    "a local volume": volume(
        **ONE,
        local={"path": "/x"},
        nodeAffinity={"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}},
    ),
    "a volume for a claim": volume(
        **ONE,
        csi={"driver": "a", "volumeHandle": "b"},
        claimRef={"name": "x", "namespace": "y"},
        persistentVolumeReclaimPolicy="Delete",
        storageClassName="s",
        volumeAttributesClassName="v",
    ),
    "an old volume": volume(**ONE, cephfs={"monitors": ["a"]}),
    "a recycled volume": volume(**ONE, nfs={"server": "a", "path": "/b"}, persistentVolumeReclaimPolicy="Recycle"),
    "an rbd volume": volume(**ONE, rbd={"monitors": ["a"], "image": "b"}),
    "a claim": claim(**SIZE),
    "a claim without a class": claim(**SIZE, storageClassName=""),
    "a fractional claim": claim(accessModes=["ReadWriteOnce"], resources={"requests": {"storage": "1500m"}}),
    "a block claim": claim(**SIZE, volumeMode="Block", selector={"matchLabels": {"a": "b"}}),
    "a copy": claim(**SIZE, dataSource={"kind": "PersistentVolumeClaim", "name": "a"}),
    "a copy by reference": claim(**SIZE, dataSourceRef={"kind": "PersistentVolumeClaim", "name": "a"}),
    "a snapshot": claim(
        **SIZE, dataSource={"kind": "VolumeSnapshot", "apiGroup": "snapshot.storage.k8s.io", "name": "a"}
    ),
    "any source": claim(**SIZE, dataSource={"kind": "Foo", "apiGroup": "x.y", "name": "a"}),
    "any source by reference": claim(**SIZE, dataSourceRef={"kind": "Foo", "apiGroup": "x.y", "name": "a"}),
    "a source elsewhere": claim(
        **SIZE, dataSourceRef={"kind": "Foo", "apiGroup": "x.y", "name": "a", "namespace": "z"}
    ),
    "a class": storage("StorageClass", provisioner="a/B"),
    "a class with topology": storage(
        "StorageClass",
        provisioner="a",
        volumeBindingMode="WaitForFirstConsumer",
        parameters={"a": "b"},
        allowVolumeExpansion=True,
        allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
    ),
    "a driver": storage("CSIDriver", spec={}),
    "a node's drivers": storage("CSINode", spec={"drivers": [{"name": "a", "nodeID": "x", "topologyKeys": ["k"]}]}),
    "an attachment": storage(
        "VolumeAttachment", spec={"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p"}}
    ),
    "attributes": storage("VolumeAttributesClass", driverName="a", parameters={"a": "b"}),
    "a capacity": storage("CSIStorageCapacity", storageClassName="a", capacity="1Gi"),
}

BAD: dict[str, Object] = {
    "a volume of nothing": volume(),
    "a volume": volume(
        capacity={"storage": "-1", "cpu": "1"},
        accessModes=["X", "ReadWriteOncePod", "ReadWriteOnce"],
        hostPath={"path": "/", "type": "X"},
        nfs={"server": "", "path": ""},
        persistentVolumeReclaimPolicy="X",
        storageClassName="A",
        volumeMode="X",
        nodeAffinity={},
        volumeAttributesClassName="",
    ),
    "recycling the root": volume(**ONE, hostPath={"path": "/"}, persistentVolumeReclaimPolicy="Recycle"),
    "a local volume anywhere": volume(**ONE, local={"path": "/x"}),
    "a local volume without a path": volume(**ONE, local={"path": ""}),
    "a csi volume": volume(
        **ONE,
        csi={"driver": "", "volumeHandle": "", "nodePublishSecretRef": {"name": "A"}},
        volumeAttributesClassName="A",
    ),
    "affinity": volume(**ONE, **HOST, nodeAffinity={"required": {"nodeSelectorTerms": []}}),
    "a claim for nothing": claim(),
    "a claim": claim(
        accessModes=["X", "ReadWriteOncePod", "ReadWriteMany"],
        resources={"requests": {"storage": "0"}},
        selector={"matchLabels": {"a b": "c"}},
        storageClassName="A",
        volumeMode="X",
        dataSource={"kind": "X", "name": ""},
        dataSourceRef={"kind": "Y", "name": "a", "apiGroup": "A"},
        volumeAttributesClassName="A",
    ),
    "a claim of two sources": claim(
        **SIZE,
        dataSource={"kind": "PersistentVolumeClaim", "name": "a"},
        dataSourceRef={"kind": "PersistentVolumeClaim", "name": "b"},
    ),
    "a class without a provisioner": storage("StorageClass"),
    "a class": storage(
        "StorageClass",
        provisioner="A B",
        parameters={"": "x"},
        reclaimPolicy="X",
        volumeBindingMode="X",
        allowedTopologies=[
            {
                "matchLabelExpressions": [
                    {"key": "", "values": []},
                    {"key": "a", "values": ["b", "b"]},
                    {"key": "a", "values": ["b"]},
                ]
            },
            {"matchLabelExpressions": [{"key": "a", "values": ["b"]}]},
            {"matchLabelExpressions": [{"key": "a", "values": ["b"]}]},
        ],
    ),
    "a class with much to say": storage("StorageClass", provisioner="a", parameters={"a": "x" * 300000}),
    "a class with many words": storage(
        "StorageClass", provisioner="a", parameters={str(number): "x" for number in range(513)}
    ),
    "a class that recycles": storage("StorageClass", provisioner="a", reclaimPolicy="Recycle"),
    "a driver": storage(
        "CSIDriver",
        spec={
            "volumeLifecycleModes": ["X"],
            "fsGroupPolicy": "X",
            "tokenRequests": [{"audience": "a", "expirationSeconds": 5}, {"audience": "a"}],
        },
    ),
    "a node's drivers": storage(
        "CSINode",
        spec={
            "drivers": [
                {"name": "", "nodeID": ""},
                {"name": "a", "nodeID": "x", "topologyKeys": ["a", "a", "a b"], "allocatable": {"count": -1}},
                {"name": "a", "nodeID": "x" * 300},
            ]
        },
    ),
    "an attachment of nothing": storage("VolumeAttachment", spec={"attacher": "", "nodeName": "", "source": {}}),
    "attributes of nothing": storage("VolumeAttributesClass", driverName=""),
    "a capacity": storage(
        "CSIStorageCapacity", storageClassName="", capacity="-1", nodeTopology={"matchLabels": {"a b": "c"}}
    ),
}

UPDATES: list[Case] = [
    Case("the source", volume(**ONE, **HOST), set_("spec.hostPath.path", "/y")),
    Case("the size of a volume", volume(**ONE, **HOST), set_("spec.capacity.storage", "2Gi")),
    Case("the mode of a volume", volume(**ONE, **HOST), set_("spec.volumeMode", "Block")),
    Case("the claim reference", volume(**ONE, **HOST), set_("spec.claimRef", {"name": "a", "namespace": "b"})),
    Case("what becomes of it", volume(**ONE, **HOST), set_("spec.persistentVolumeReclaimPolicy", "Delete")),
    Case(
        "where it is, once",
        volume(**ONE, **HOST),
        set_(
            "spec.nodeAffinity",
            {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}},
        ),
    ),
    Case(
        "where it is, again",
        volume(
            **ONE,
            **HOST,
            nodeAffinity={
                "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
            },
        ),
        set_(
            "spec.nodeAffinity",
            {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "b", "operator": "Exists"}]}]}},
        ),
    ),
    Case(
        "the status of a volume",
        volume(**ONE, **HOST),
        set_("status", {"phase": "Bound"}),
        part="status",
        unlike=("lastPhaseTransitionTime", "rules have no clock; whoever binds a volume writes when"),
    ),
    Case(
        "no attributes class of a volume any more",
        volume(**ONE, csi={"driver": "a", "volumeHandle": "b"}, volumeAttributesClassName="a"),
        set_("spec.volumeAttributesClassName", None),
    ),
    Case("a smaller claim", claim(**SIZE), set_("spec.resources.requests.storage", "1Mi")),
    Case("the modes of a claim", claim(**SIZE), set_("spec.accessModes", ["ReadWriteMany"])),
    Case("the volume of a claim", claim(**SIZE), set_("spec.volumeName", "v")),
    Case("another volume of a claim", claim(**SIZE, volumeName="v"), set_("spec.volumeName", "w")),
    Case("a class where there was none", claim(**SIZE), set_("spec.storageClassName", "s")),
    Case("another class", claim(**SIZE, storageClassName="a"), set_("spec.storageClassName", "s")),
    Case("the mode of a claim", claim(**SIZE), set_("spec.volumeMode", "Block")),
    Case(
        "no attributes class any more",
        claim(**SIZE, volumeAttributesClassName="a"),
        set_("spec.volumeAttributesClassName", None),
    ),
    Case("labels of a claim", claim(**SIZE), set_("metadata.labels", {"a": "b"})),
    Case(
        "a bound claim",
        claim(**SIZE),
        set_("status", {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}),
        part="status",
    ),
    Case(
        "a bad status of a claim",
        claim(**SIZE),
        set_("status", {"capacity": {"storage": "-1"}, "allocatedResources": {"a b": "1", "cpu": "1"}}),
        part="status",
    ),
    Case(
        "the provisioner",
        storage("StorageClass", provisioner="a"),
        both(
            set_("provisioner", "b"),
            set_("parameters", {"a": "b"}),
            set_("reclaimPolicy", "Retain"),
            set_("volumeBindingMode", "WaitForFirstConsumer"),
        ),
    ),
    Case("expansion", storage("StorageClass", provisioner="a"), set_("allowVolumeExpansion", True)),
    Case(
        "attributes",
        storage("VolumeAttributesClass", driverName="a", parameters={"a": "b"}),
        both(set_("driverName", "b"), set_("parameters", {"c": "d"})),
    ),
    Case(
        "an attachment",
        storage("VolumeAttachment", spec={"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p"}}),
        set_("spec.nodeName", "m"),
    ),
    Case(
        "a driver that attaches",
        storage("CSIDriver", spec={}),
        both(
            set_("spec.attachRequired", False),
            set_("spec.volumeLifecycleModes", ["Ephemeral"]),
            set_("spec.podInfoOnMount", True),
        ),
    ),
]

CASES = [Case(f"good: {name}", obj) for name, obj in GOOD.items()]
CASES += [Case(f"bad: {name}", obj) for name, obj in BAD.items()]
CASES += UPDATES
