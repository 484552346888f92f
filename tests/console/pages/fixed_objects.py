"""Queues, nodes, volumes and ended jobs of the cluster that is always the same."""

from __future__ import annotations

from typing import Any

CREATED = "2026-01-01T09:00:00Z"


def _metadata(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "uid": name, "creationTimestamp": CREATED, **more}


def cluster_queues() -> list[dict[str, Any]]:
    quota = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}
    used = {"cpu": "24", "memory": "420Gi", "nvidia.com/gpu": "8"}
    quotas = [{"name": name, "nominalQuota": value} for name, value in quota.items()]
    groups = [{"coveredResources": list(quota), "flavors": [{"name": "h100", "resources": quotas}]}]
    usage = [{"name": "h100", "resources": [{"name": name, "total": value} for name, value in used.items()]}]
    status = {"flavorsUsage": usage, "pendingWorkloads": 2, "admittedWorkloads": 2}
    return [
        {"metadata": _metadata("research"), "spec": {"resourceGroups": groups, "cohortName": "all"}, "status": status}
    ]


def local_queues() -> list[dict[str, Any]]:
    spec = {"clusterQueue": "research"}
    return [{"metadata": _metadata(name, namespace="default"), "spec": spec} for name in ("vision", "language")]


def workloads() -> list[dict[str, Any]]:
    items = []
    for index, (job, priority, message) in enumerate(
        (
            ("train-0", 10, ""),
            ("train-1", 0, ""),
            (
                "train-4",
                100,
                "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu, 4 more needed",
            ),
            (
                "train-9",
                0,
                "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu, 8 more needed",
            ),
        )
    ):
        owner = {"kind": "PyTorchJob", "name": job, "uid": job, "controller": True}
        status: dict[str, Any] = {"conditions": [{"type": "QuotaReserved", "status": "False", "message": message}]}
        if not message:
            admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": CREATED}
            status = {"conditions": [admitted], "admission": {"clusterQueue": "research"}}
        metadata = _metadata(f"pytorchjob-{job}", namespace="default", ownerReferences=[owner])
        metadata["creationTimestamp"] = f"2026-01-01T11:{10 * index:02d}:00Z"
        spec = {"queueName": ("vision", "language")[index % 2], "priority": priority}
        items.append({"metadata": metadata, "spec": spec, "status": status})
    return items


def nodes() -> list[dict[str, Any]]:
    allocatable = {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "4"}
    info = {"architecture": "amd64", "osImage": "Debian GNU/Linux 12 (bookworm)", "kubeletVersion": "v1.34.4"}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": allocatable, "nodeInfo": info, "conditions": conditions}
    return [{"metadata": _metadata(f"node-{index}"), "spec": {}, "status": status} for index in range(2)]


def node_metrics() -> list[dict[str, Any]]:
    usage = ({"cpu": "12500m", "memory": "190Gi"}, {"cpu": "31900m", "memory": "60Gi"})
    return [{"metadata": {"name": f"node-{index}"}, "usage": each} for index, each in enumerate(usage)]


def claims() -> list[dict[str, Any]]:
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "nfs", "volumeName": "pv-data"}
    status = {"phase": "Bound", "capacity": {"storage": "500Gi"}}
    waits = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    return [
        {"metadata": _metadata("data", namespace="default"), "spec": spec, "status": status},
        {"metadata": _metadata("scratch", namespace="default"), "spec": waits, "status": {"phase": "Pending"}},
    ]


def volumes() -> list[dict[str, Any]]:
    reference = {"namespace": "default", "name": "data"}
    spec = {"capacity": {"storage": "500Gi"}, "persistentVolumeReclaimPolicy": "Retain", "claimRef": reference}
    return [
        {
            "metadata": _metadata("pv-data"),
            "spec": {**spec, "hostPath": {"path": "/srv/data"}},
            "status": {"phase": "Bound"},
        }
    ]


def ended_jobs() -> list[dict[str, Any]]:
    states = (
        ("Succeeded", 0, "PyTorchJob train is successfully completed."),
        ("Failed", 137, "worker-2 was killed: OOMKilled"),
    )
    return [
        {
            **{"uid": f"ended-{index}", "namespace": "default", "name": f"train-{index}", "kind": "PyTorchJob"},
            **{"state": state, "message": message, "exitCode": code, "gpuSeconds": 3600 * index, "replicas": []},
            **{"created": "2026-01-01T08:00:00Z", "ended": f"2026-01-01T09:{10 + index}:00Z"},
        }
        for index, (state, code, message) in enumerate(states * 3)
    ]
