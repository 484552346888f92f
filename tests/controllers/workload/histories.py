"""Histories of workloads: what a user and a kubelet do, step by step. Both sides of the comparison play the same.

A step is a list: the operation and its arguments (see `runner.Player`). The histories are deterministic.
"""

from __future__ import annotations

import random
from typing import Any

from torchyard.api.objects import Object

Step = list[Any]


def template(image: str = "busybox:1", app: str = "web", **spec: Any) -> Object:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": "10m"}}}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], "schedulerName": "none", **spec}}


def workload(
    kind: str, name: str = "web", *, replicas: int | None = 3, pods: Object | None = None, **spec: Any
) -> Step:
    group = "v1" if kind == "ReplicationController" else "apps/v1"
    selector: Object = {"app": name} if kind == "ReplicationController" else {"matchLabels": {"app": name}}
    body = {"selector": selector, "template": pods or template(app=name), **spec}
    if replicas is not None:
        body["replicas"] = replicas
    return ["create", {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": body}]


def image(kind: str, tag: int, name: str = "web") -> Step:
    containers = [{"name": "main", "image": f"busybox:{tag}"}]
    return ["patch", kind, name, {"spec": {"template": {"spec": {"containers": containers}}}}]


def scale(kind: str, replicas: int, name: str = "web") -> Step:
    return ["patch", kind, name, {"spec": {"replicas": replicas}}]


def ready(count: int) -> list[Step]:
    return [["ready"]] * count


DEPLOYMENT, REPLICA_SET = "Deployment", "ReplicaSet"

HISTORIES: dict[str, list[Step]] = {
    "deployment-rolls": [
        workload(DEPLOYMENT),
        *ready(3),
        image(DEPLOYMENT, 2),
        *ready(3),
        image(DEPLOYMENT, 1),  # back to the first template
        *ready(3),
    ],
    "deployment-recreates": [
        workload(DEPLOYMENT, strategy={"type": "Recreate"}, replicas=2),
        *ready(2),
        image(DEPLOYMENT, 2),
        *ready(2),
    ],
    "deployment-proportional": [
        workload(
            DEPLOYMENT,
            replicas=10,
            strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}},
        ),
        ["ready", 10],
        image(DEPLOYMENT, 2),
        scale(DEPLOYMENT, 15),
        scale(DEPLOYMENT, 6),
        scale(DEPLOYMENT, 0),
    ],
    "deployment-paused": [
        workload(DEPLOYMENT, replicas=2, paused=True),
        ["patch", DEPLOYMENT, "web", {"spec": {"paused": False}}],
        *ready(2),
        ["patch", DEPLOYMENT, "web", {"spec": {"paused": True}}],
        image(DEPLOYMENT, 2),
        scale(DEPLOYMENT, 3),
        ["patch", DEPLOYMENT, "web", {"spec": {"paused": False}}],
        *ready(3),
    ],
    "deployment-history": [
        workload(DEPLOYMENT, replicas=1, revisionHistoryLimit=1),
        *ready(1),
        image(DEPLOYMENT, 2),
        *ready(1),
        image(DEPLOYMENT, 3),
        *ready(1),
        image(DEPLOYMENT, 4),
        *ready(1),
    ],
    "deployment-deadline": [
        workload(DEPLOYMENT, replicas=1, progressDeadlineSeconds=3, minReadySeconds=1),
        ["await", DEPLOYMENT, "web", "Progressing", "False"],
        ["ready"],
        ["await", DEPLOYMENT, "web", "Available", "True"],
        ["patch", DEPLOYMENT, "web", {"metadata": {"annotations": {"note": "copied"}}, "spec": {"minReadySeconds": 0}}],
    ],
    "deployment-refused": [
        [
            "create",
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}},
        ],
        ["await-quota"],
        workload(DEPLOYMENT, replicas=2, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}),
        ["delete", "ResourceQuota", "few"],
        ["touch-pods"],
    ],
    "deployment-orphans": [
        workload(DEPLOYMENT, replicas=2),
        *ready(2),
        ["delete", DEPLOYMENT, "web", "Orphan"],
        workload(DEPLOYMENT, replicas=2),
        ["delete", DEPLOYMENT, "web", "Foreground"],
    ],
    "replicaset-adopts": [
        [
            "create",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "alone", "labels": {"app": "web"}},
                "spec": template()["spec"],
            },
        ],
        workload(REPLICA_SET, replicas=2),
        *ready(2),
        ["relabel", {"app": "other"}],
        scale(REPLICA_SET, 1),
        ["fail"],
        ["delete-pod"],
        scale(REPLICA_SET, 0),
    ],
    "replicationcontroller": [
        workload("ReplicationController", replicas=2),
        *ready(1),
        ["delete-pod"],
        *ready(1),
        scale("ReplicationController", 1),
        ["delete", "ReplicationController", "web", "Orphan"],
    ],
}


STATEFUL_SET, DAEMON_SET = "StatefulSet", "DaemonSet"
CLAIM = {
    "metadata": {"name": "data", "labels": {"own": "yes"}},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}},
        "storageClassName": "none",
    },
}
_ANY_STATE = [{"key": f"node.kubernetes.io/{state}", "operator": "Exists"} for state in ("not-ready", "unreachable")]


def stateful(**spec: Any) -> Step:
    return workload(STATEFUL_SET, serviceName="web", **spec)


def daemons(**spec: Any) -> Step:
    pods = template(tolerations=_ANY_STATE, **spec.pop("pod", {}))
    return workload(DAEMON_SET, replicas=None, pods=pods, **spec)


def budget(**spec: Any) -> Step:
    body = {"selector": {"matchLabels": {"app": "web"}}, **spec}
    metadata = {"name": "budget"}
    return ["create", {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": body}]


HISTORIES |= {
    "statefulset-ordered": [
        stateful(volumeClaimTemplates=[CLAIM]),
        *ready(3),
        ["unready"],
        ["delete-pod", "web-1"],
        *ready(2),
        image(STATEFUL_SET, 2),
        *ready(3),
        image(STATEFUL_SET, 1),
        *ready(3),
        scale(STATEFUL_SET, 1),
        scale(STATEFUL_SET, 2),
        ["fail"],
        *ready(1),
        ["delete", STATEFUL_SET, "web", "Foreground"],
    ],
    "statefulset-parallel": [
        stateful(podManagementPolicy="Parallel", ordinals={"start": 5}),
        *ready(2),
        image(STATEFUL_SET, 2),
        *ready(3),
        scale(STATEFUL_SET, 1),
        ["delete", STATEFUL_SET, "web", "Orphan"],
        stateful(podManagementPolicy="Parallel", replicas=1, ordinals={"start": 5}),
    ],
    "statefulset-partition": [
        stateful(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}),
        *ready(3),
        image(STATEFUL_SET, 2),
        *ready(1),
        ["delete-pod", "web-0"],
        *ready(1),
        ["patch", STATEFUL_SET, "web", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}],
        *ready(3),
    ],
    "statefulset-on-delete": [
        stateful(updateStrategy={"type": "OnDelete"}, replicas=2, revisionHistoryLimit=1),
        *ready(2),
        image(STATEFUL_SET, 2),
        ["delete-pod", "web-1"],
        *ready(1),
        image(STATEFUL_SET, 3),
        ["delete-pod", "web-0"],
        *ready(1),
        ["delete-pod", "web-1"],
        *ready(1),
    ],
    "statefulset-retention": [
        stateful(
            replicas=2,
            volumeClaimTemplates=[CLAIM],
            persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete", "whenScaled": "Delete"},
        ),
        *ready(2),
        scale(STATEFUL_SET, 1),
        scale(STATEFUL_SET, 2),
        *ready(1),
        ["patch", STATEFUL_SET, "web", {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Retain"}}}],
        scale(STATEFUL_SET, 1),
        ["delete", STATEFUL_SET, "web"],
    ],
    "statefulset-min-ready": [
        stateful(replicas=2, minReadySeconds=1),
        ["ready"],
        ["succeed"],
        ["ready"],
        ["ready"],
    ],
    "daemonset-rolls": [
        daemons(),
        *ready(2),
        image(DAEMON_SET, 2),
        *ready(2),
        image(DAEMON_SET, 1),
        ["ready"],
        ["delete-pod"],
        *ready(2),
        ["delete", DAEMON_SET, "web", "Orphan"],
        daemons(),
    ],
    "daemonset-surges": [
        daemons(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
        *ready(2),
        image(DAEMON_SET, 2),
        *ready(2),
    ],
    "daemonset-on-delete": [
        daemons(updateStrategy={"type": "OnDelete"}, pod={"nodeSelector": {"disk": "ssd"}}, revisionHistoryLimit=0),
        *ready(1),
        image(DAEMON_SET, 2),
        ["delete-pod"],
        ["fail"],
        ["patch", DAEMON_SET, "web", {"spec": {"template": {"spec": {"nodeSelector": {"disk": "none"}}}}}],
    ],
    "budget-of-a-deployment": [
        budget(maxUnavailable=1),
        workload(DEPLOYMENT, replicas=3),
        *ready(3),
        ["evict"],
        ["evict"],
        *ready(1),
        ["patch", "PodDisruptionBudget", "budget", {"spec": {"maxUnavailable": "50%"}}],
        scale(DEPLOYMENT, 1),
    ],
    "budget-of-a-statefulset": [
        stateful(replicas=2),
        *ready(2),
        budget(minAvailable="80%"),
        ["evict", "web-0"],
        ["unready"],
        ["evict", "web-0"],
    ],
    "budget-of-an-unmanaged-pod": [
        budget(
            maxUnavailable=1,
            selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]},
        ),
        [
            "create",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "alone", "labels": {"app": "web"}},
                "spec": template()["spec"],
            },
        ],
        ["ready"],
        ["evict"],
    ],
    "budget-of-a-job": [
        budget(minAvailable="50%"),
        [
            "create",
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "web"},
                "spec": {"template": template(restartPolicy="Never")},
            },
        ],
        ["ready"],
        ["evict"],
    ],
    "budget-of-unhealthy-pods": [
        workload(DEPLOYMENT, replicas=2),
        budget(minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow"),
        *ready(1),
        ["unready"],
        ["evict"],
        *ready(2),
        ["evict"],
    ],
    "budget-of-pods": [
        budget(minAvailable=1),
        [
            "create",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "alone", "labels": {"app": "web"}},
                "spec": template()["spec"],
            },
        ],
        ["ready"],
        ["evict"],
        [
            "create",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "other", "labels": {"app": "web"}},
                "spec": template()["spec"],
            },
        ],
        ["ready"],
        ["evict"],
    ],
}


def generated(kind: str, seed: int, length: int = 12) -> list[Step]:
    """A random history: images, sizes, readiness, deaths and pauses."""
    draw = random.Random(f"{kind}-{seed}")
    strategy = {"maxSurge": draw.choice([0, 1, "25%", "50%"]), "maxUnavailable": draw.choice([1, 2, "30%"])}
    extra: Object = {}
    if kind == DEPLOYMENT:
        extra = {"strategy": {"type": "RollingUpdate", "rollingUpdate": strategy}}
        if draw.random() < 0.25:
            extra = {"strategy": {"type": "Recreate"}}
        extra["revisionHistoryLimit"] = draw.choice([0, 1, 10])
    if kind == STATEFUL_SET:
        extra = {"podManagementPolicy": draw.choice(["OrderedReady", "Parallel"]), "serviceName": "web"}
    steps: list[Step] = [workload(kind, replicas=draw.randint(1, 4), **extra)]
    while len(steps) < length:
        choices = ["ready", "ready", "ready", "scale", "image", "delete-pod", "unready", "fail"]
        if kind == DEPLOYMENT:
            choices += ["pause", "image"]
        operation = draw.choice(choices)
        if operation == "scale":
            steps.append(scale(kind, draw.randint(0, 5)))
        elif operation == "image":
            steps.append(image(kind, draw.randint(1, 3)))
        elif operation == "pause":
            steps.append(["patch", kind, "web", {"spec": {"paused": draw.random() < 0.4}}])
        else:
            steps.append([operation])
    if kind == DEPLOYMENT:
        steps.append(["patch", kind, "web", {"spec": {"paused": False}}])
    return [*steps, *ready(5)]


def _empty_values(kind: str) -> list[Step]:
    """An empty selector and an empty class name mean something else than none, so that their removal is a rollout."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "other"}}}
    affinity = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, "namespaceSelector": {}}]}
    }
    claim = {**CLAIM["spec"], "storageClassName": ""}
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    pods = template(tolerations=_ANY_STATE, affinity=affinity, volumes=[volume])
    own = {"serviceName": "web"} if kind == STATEFUL_SET else {}
    anywhere = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    present = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": None}}}}
    return [
        workload(kind, replicas=None if kind == DAEMON_SET else 1, pods=pods, **own),
        *ready(2),
        ["patch", kind, "web", {"spec": {"template": {"spec": {"affinity": anywhere}}}}],
        *ready(2),
        ["patch", kind, "web", {"spec": {"template": {"spec": {"volumes": [present]}}}}],
        *ready(2),
    ]


HISTORIES |= {
    "deployment-empty-values": _empty_values(DEPLOYMENT),
    "statefulset-empty-values": _empty_values(STATEFUL_SET),
    "daemonset-empty-values": _empty_values(DAEMON_SET),
}
HISTORIES |= {f"generated-deployment-{seed}": generated(DEPLOYMENT, seed) for seed in range(6)}
HISTORIES |= {f"generated-replicaset-{seed}": generated(REPLICA_SET, seed, 8) for seed in range(2)}
HISTORIES |= {f"generated-statefulset-{seed}": generated(STATEFUL_SET, seed, 9) for seed in range(4)}
