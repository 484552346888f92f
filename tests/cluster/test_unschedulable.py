"""Pods that fit nowhere: our scheduler's sentence is the real kube-scheduler's, to the letter."""

from __future__ import annotations

from typing import Any

from tests.cluster.conftest import Cluster
from tests.support.waiting import eventually

from torchyard.api.objects import Object
from torchyard.core.scheduling.node_info import NodeInfo
from torchyard.core.scheduling.schedule import Unschedulable, schedule_pod

PODS = "/api/v1/namespaces/default/pods"
NOW = "2026-01-01T00:00:00Z"
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "3", "ephemeral-storage": "10Gi"}
NODES: dict[str, Object] = {
    "plain": {},
    "tainted": {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]},
    "cordoned": {"unschedulable": True},
}


def requests(**amounts: str) -> Object:
    named = {name.replace("gpu", "nvidia.com/gpu"): amount for name, amount in amounts.items()}
    return {
        "resources": {
            "requests": named,
            "limits": {name: quantity_text for name, quantity_text in named.items() if "/" in name},
        }
    }


def spec(container: Object | None = None, **more: Any) -> Object:
    return {"containers": [{"name": "c", "image": "busybox", **(container or {})}], **more}


def affinity(kind: str, required: Any) -> Object:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def term(key: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


TOLERATES = {"tolerations": [{"key": "team", "operator": "Exists"}]}
AFFINITY_TERMS = [{"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}]
APART = [{"labelSelector": {"matchLabels": {"app": "there"}}, "topologyKey": "kubernetes.io/hostname"}]
UNPLACEABLE: dict[str, Object] = {
    "cpu": spec(requests(cpu="100")),
    "cpu-now": spec(requests(cpu="4")),
    "memory": spec(requests(memory="100Gi")),
    "both": spec(requests(cpu="100", memory="100Gi")),
    "gpu": spec(requests(gpu="1")),
    "gpu-tolerant": spec(requests(gpu="1"), **TOLERATES),
    "selector": spec(nodeSelector={"disk": "ssd"}),
    "selector-and-cpu": spec(requests(cpu="100"), nodeSelector={"kubernetes.io/hostname": "plain"}),
    "selector-tainted": spec(nodeSelector={"kubernetes.io/hostname": "tainted"}),
    "affinity": spec(**affinity("nodeAffinity", {"nodeSelectorTerms": [term("disk", "ssd", "nvme")]})),
    "pod-affinity": spec(**affinity("podAffinity", AFFINITY_TERMS)),
    "pod-anti-affinity": spec(**affinity("podAntiAffinity", APART)),
    "host-port": spec({"ports": [{"containerPort": 80, "hostPort": 8080}]}),
}
THERE = spec({**requests(cpu="1"), "ports": [{"containerPort": 80, "hostPort": 8080}]}, nodeName="plain")


def make_nodes(cluster: Cluster) -> list[Object]:
    api = cluster.server.admin
    for name, node_spec in NODES.items():
        labels = {"kubernetes.io/hostname": name}
        assert (
            api.post("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": node_spec}).status == 201
        )
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Test",
            "lastHeartbeatTime": NOW,
            "lastTransitionTime": NOW,
        }
        status = {"capacity": ROOM, "allocatable": ROOM, "conditions": [ready]}
        assert api.patch(f"/api/v1/nodes/{name}/status", {"status": status}).status == 200
    for name in NODES:
        eventually(lambda name=name: "not-ready" not in str(_spec(cluster, name)), "the not-ready taint removed")  # type: ignore[misc]
    eventually(lambda: "node.kubernetes.io/unschedulable" in str(_spec(cluster, "cordoned")), "the cordon's taint")
    return [api.get(f"/api/v1/nodes/{name}").json for name in NODES]


def _spec(cluster: Cluster, node: str) -> Object:
    spec: Object = cluster.server.admin.get(f"/api/v1/nodes/{node}").json["spec"]
    return spec


def create_pod(cluster: Cluster, metadata: Object, spec: Object) -> Object:
    created = cluster.server.admin.post(PODS, {"metadata": metadata, "spec": spec})
    assert created.status == 201, created
    pod: Object = created.json
    return pod


def scheduler_message(cluster: Cluster, name: str) -> str:
    response = cluster.server.admin.get(f"{PODS}/{name}")
    assert response.status == 200, response
    pod = response.json
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next(
        (
            str(condition["message"])
            for condition in conditions
            if condition["type"] == "PodScheduled" and condition.get("message")
        ),
        "",
    )


def test_unschedulable_messages_match_the_real_scheduler(cluster: Cluster) -> None:
    nodes = make_nodes(cluster)
    running_pod = create_pod(cluster, {"name": "there", "labels": {"app": "there"}}, THERE)
    pods_by_name = {name: create_pod(cluster, {"name": name}, item) for name, item in UNPLACEABLE.items()}
    for name in UNPLACEABLE:
        eventually(lambda name=name: scheduler_message(cluster, name) != "", f"a message for {name}")  # type: ignore[misc]
    views = [NodeInfo.of(node, [running_pod] if node["metadata"]["name"] == "plain" else []) for node in nodes]
    decisions = {name: schedule_pod(pods_by_name[name], views) for name in UNPLACEABLE}
    own_messages = {
        name: item.message if isinstance(item, Unschedulable) else f"on {item}" for name, item in decisions.items()
    }
    scheduler_messages = {name: scheduler_message(cluster, name) for name in UNPLACEABLE}
    assert own_messages == scheduler_messages
    assert all(isinstance(item, Unschedulable) and item.hint for item in decisions.values()), "each has a hint"
