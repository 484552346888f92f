"""New objects for the comparison of admission, and what must be there before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchyard.api.objects import Object

CORE = "/api/v1/namespaces"


@dataclass(frozen=True)
class Case:
    """A new object in a namespace."""

    name: str
    body: Object
    namespace: str = "admission"
    resource: str = "pods"
    group: str = ""

    @property
    def path(self) -> str:
        root = f"/apis/{self.group}/v1" if self.group else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{self.resource}" if self.namespace else f"{root}/{self.resource}"


def resources(requests: Object | None = None, limits: Object | None = None) -> Object:
    # Requests follow limits before admission sees a pod.
    amounts = {**(limits or {}), **(requests or {})}
    return {**({"limits": limits} if limits else {}), **({"requests": amounts} if amounts else {})}


def pod(
    name: str, *container_resources: Object, init: tuple[Object, ...] = (), metadata: Object | None = None, **spec: Any
) -> Object:
    body: Object = {
        "containers": [
            {"name": f"c{n}", "image": "i", "resources": resources_}
            for n, resources_ in enumerate(container_resources or ({},))
        ],
        **spec,
    }
    if init:
        body["initContainers"] = [
            {"name": f"i{n}", "image": "i", "resources": resources_} for n, resources_ in enumerate(init)
        ]
    return {"metadata": {"name": name, **(metadata or {})}, "spec": body}


def namespace(name: str) -> tuple[str, Object]:
    return CORE, {"metadata": {"name": name}}


def limit_range(namespace: str, *limits: Object) -> tuple[str, Object]:
    return f"{CORE}/{namespace}/limitranges", {"metadata": {"name": "limits"}, "spec": {"limits": list(limits)}}


def quota(namespace: str, name: str, hard: Object, **spec: Any) -> tuple[str, Object]:
    """A quota with nothing used, as its controller would note."""
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    return f"{CORE}/{namespace}/resourcequotas", {
        "metadata": {"name": name},
        "spec": {"hard": hard, **spec},
        "status": status,
    }


DEFAULT_CLASS = {"storageclass.kubernetes.io/is-default-class": "true"}
SETUP: list[tuple[str, Object]] = [
    namespace("admission"),
    namespace("admission-ending"),
    namespace("admission-limits"),
    namespace("admission-pod-limits"),
    namespace("admission-quota"),
    namespace("admission-scopes"),
    (f"{CORE}/admission-ending/configmaps", {"metadata": {"name": "hold", "finalizers": ["torchyard.test/hold"]}}),
    (
        f"{CORE}/admission/serviceaccounts",
        {"metadata": {"name": "quiet"}, "automountServiceAccountToken": False, "imagePullSecrets": [{"name": "pull"}]},
    ),
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "usual"}, "value": 100, "globalDefault": True, "preemptionPolicy": "Never"},
    ),
    (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "metadata": {"name": "sandbox"},
            "handler": "h",
            "overhead": {"podFixed": {"cpu": "10m"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
        },
    ),
    (
        "/apis/storage.k8s.io/v1/storageclasses",
        {"metadata": {"name": "plain", "annotations": DEFAULT_CLASS}, "provisioner": "x/y"},
    ),
    (
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": "growing", "annotations": DEFAULT_CLASS},
            "provisioner": "x/y",
            "allowVolumeExpansion": True,
        },
    ),
    (
        "/apis/networking.k8s.io/v1/ingressclasses",
        {
            "metadata": {"name": "front", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"controller": "x.example/y"},
        },
    ),
    limit_range(
        "admission-limits",
        {
            "type": "Container",
            "default": {"cpu": "500m", "memory": "512Mi"},
            "defaultRequest": {"cpu": "100m"},
            "min": {"cpu": "50m"},
            "max": {"cpu": "2"},
            "maxLimitRequestRatio": {"cpu": "10"},
        },
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}},
    ),
    limit_range(
        "admission-pod-limits",
        {"type": "Pod", "min": {"cpu": "100m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"memory": "2"}},
    ),
    quota(
        "admission-quota",
        "all",
        {
            "requests.cpu": "1",
            "limits.memory": "1Gi",
            "count/secrets": "0",
            "services": "1",
            "services.nodeports": "1",
            "services.loadbalancers": "0",
            "persistentvolumeclaims": "1",
            "requests.storage": "2Gi",
            "growing.storageclass.storage.k8s.io/requests.storage": "1Gi",
            "count/jobs.batch": "0",
            "requests.nvidia.com/gpu": "1",
            "requests.ephemeral-storage": "1Gi",
        },
    ),
    quota("admission-scopes", "best", {"pods": "0"}, scopes=["BestEffort"]),
    quota("admission-scopes", "ending", {"pods": "0"}, scopes=["Terminating", "NotBestEffort"]),
    quota(
        "admission-scopes",
        "urgent",
        {"pods": "0", "cpu": "1"},
        scopeSelector={
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]},
            ]
        },
    ),
]

SOME = resources({"cpu": "100m"}, {"memory": "100Mi"})
TOLERATION = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 5,
}
MOUNT = {"name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
MIRROR = {"annotations": {"kubernetes.io/config.mirror": "x"}}
POD_CASES = [
    Case("plain", pod("plain")),
    Case("two containers and init", pod("two", {}, {}, init=({},))),
    Case("missing namespace", pod("x"), "admission-nowhere"),
    Case("namespace ends", pod("x"), "admission-ending"),
    Case("missing account", pod("x", serviceAccountName="nobody")),
    Case("account without token", pod("x", serviceAccountName="quiet")),
    Case("own pull secret", pod("x", serviceAccountName="quiet", imagePullSecrets=[{"name": "own"}])),
    Case("token asked for", pod("x", serviceAccountName="quiet", automountServiceAccountToken=True)),
    Case("no token asked for", pod("x", automountServiceAccountToken=False)),
    Case(
        "own mount",
        {
            "metadata": {"name": "x"},
            "spec": {
                "volumes": [{"name": "own", "emptyDir": {}}],
                "containers": [
                    {"name": "a", "image": "i", "volumeMounts": [MOUNT]},
                    {"name": "b", "image": "i"},
                ],
            },
        },
    ),
    Case("mirror with account", pod("x", metadata=MIRROR, serviceAccountName="default", nodeName="n")),
    Case("generated name refused", {**pod("x", serviceAccountName="nobody"), "metadata": {"generateName": "gen-"}}),
    Case("unknown priority class", pod("x", priorityClassName="nope")),
    Case("system priority", pod("x", priorityClassName="system-node-critical")),
    Case("priority that differs", pod("x", priority=5)),
    Case("priority that fits", pod("x", priority=100)),
    Case("preemption that differs", pod("x", preemptionPolicy="PreemptLowerPriority")),
    Case("unknown runtime class", pod("x", runtimeClassName="nope")),
    Case("runtime class", pod("x", runtimeClassName="sandbox", nodeSelector={"x": "y"})),
    Case("runtime class against selector", pod("x", runtimeClassName="sandbox", nodeSelector={"a": "z"})),
    Case("overhead that differs", pod("x", runtimeClassName="sandbox", overhead={"cpu": "20m"})),
    Case("overhead that fits", pod("x", runtimeClassName="sandbox", overhead={"cpu": "0.01"})),
    Case("overhead without class", pod("x", overhead={"cpu": "20m"})),
    Case("own toleration", pod("x", tolerations=[TOLERATION])),
    Case("tolerates all", pod("x", tolerations=[{"operator": "Exists"}])),
    Case(
        "tolerates other effects",
        pod("x", tolerations=[{"key": TOLERATION["key"], "operator": "Exists", "effect": "NoSchedule"}]),
    ),
]
LIMIT_CASES = [
    Case(name, body, "admission-limits")
    for name, body in {
        "limits by default": pod("x", {}, resources({}, {"cpu": "1"}), init=({}, resources({"memory": "8Mi"}))),
        "too little": pod("x", resources({"cpu": "10m"})),
        "too much": pod("x", resources({}, {"cpu": "3"})),
        "too uneven": pod("x", resources({"cpu": "100m"}, {"cpu": "2"})),
        "device": pod("x", resources({}, {"nvidia.com/gpu": "1"})),
    }.items()
] + [
    Case(name, body, "admission-pod-limits")
    for name, body in {
        "pod in limits": pod("x", resources({"cpu": "100m", "memory": "1Mi"}, {"cpu": "500m", "memory": "2Mi"})),
        "pod too little": pod("x", resources({"cpu": "50m", "memory": "1Mi"}, {"cpu": "500m", "memory": "2Mi"})),
        "pod too much": pod(
            "x",
            resources({"memory": "1Mi"}, {"cpu": "600m", "memory": "1Mi"}),
            resources({"memory": "1Mi"}, {"cpu": "600m", "memory": "1Mi"}),
        ),
        "init too much": pod(
            "x", resources({}, {"cpu": "1", "memory": "1Mi"}), init=(resources({}, {"cpu": "2", "memory": "1Mi"}),)
        ),
        "pod too uneven": pod("x", resources({"memory": "1Mi"}, {"cpu": "1", "memory": "3Mi"})),
    }.items()
]
QUOTA_CASES = [
    Case(name, body, "admission-quota")
    for name, body in {
        "quota demands": pod("x", {}, SOME, init=({},)),
        "quota fits": pod("x", SOME),
        "quota exceeded twice": pod("x", resources({"cpu": "2"}, {"memory": "2Gi"})),
        "quota exceeded by init": pod("x", SOME, init=(resources({"cpu": "2"}, {"memory": "1Mi"}),)),
        "quota exceeded by sidecars": {
            "metadata": {"name": "x"},
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": resources({"cpu": "600m"}, {"memory": "1"})}],
                "initContainers": [
                    {
                        "name": "s",
                        "image": "i",
                        "restartPolicy": "Always",
                        "resources": resources({"cpu": "600m"}, {"memory": "1"}),
                    }
                ],
            },
        },
        "quota exceeded by devices": pod("x", resources({"cpu": "1m"}, {"memory": "1", "nvidia.com/gpu": "2"})),
        "quota exceeded by disk": pod("x", resources({"cpu": "1m", "ephemeral-storage": "2Gi"}, {"memory": "1"})),
    }.items()
] + [
    Case(name, body, "admission-scopes")
    for name, body in {
        "best effort": pod("x"),
        "ending": pod("x", SOME, activeDeadlineSeconds=5),
        "not ending": pod("x", SOME),
        "urgent": pod("x", resources({"cpu": "1"}), priorityClassName="system-node-critical"),
        "urgent without cpu": pod("x", resources({"memory": "1"}), priorityClassName="system-node-critical"),
    }.items()
]


def claim(size: str, **spec: Any) -> Object:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"metadata": {"name": "x"}, "spec": claim_spec}


CLAIMS = "persistentvolumeclaims"
JOB = {
    "metadata": {"name": "x"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
}
BACKEND = {"service": {"name": "s", "port": {"number": 80}}}
OTHER_CASES = [
    Case("claim", claim("1Gi"), resource=CLAIMS),
    Case("claim without class", claim("1Gi", storageClassName=""), resource=CLAIMS),
    Case(
        "claim with old class",
        {
            **claim("1Gi"),
            "metadata": {"name": "x", "annotations": {"volume.beta.kubernetes.io/storage-class": "plain"}},
        },
        resource=CLAIMS,
    ),
    Case("claim too small", claim("500Mi"), "admission-limits", CLAIMS),
    Case("claim too large", claim("10Gi"), "admission-limits", CLAIMS),
    Case("claim over quota", claim("3Gi", storageClassName=""), "admission-quota", CLAIMS),
    Case("claim over its class's quota", claim("2Gi"), "admission-quota", CLAIMS),
    Case("claim in quota", claim("1Gi"), "admission-quota", CLAIMS),
    Case(
        "volume",
        {
            "metadata": {"name": "x"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/x"},
            },
        },
        "",
        "persistentvolumes",
    ),
    Case(
        "attributes class",
        {"metadata": {"name": "x"}, "driverName": "d.example.com", "parameters": {"a": "b"}},
        "",
        "volumeattributesclasses",
        "storage.k8s.io",
    ),
    Case(
        "generated name without priority", {**pod("x", priorityClassName="nope"), "metadata": {"generateName": "gen-"}}
    ),
    Case("secret over quota", {"metadata": {"name": "x"}}, "admission-quota", "secrets"),
    Case("config map where namespace ends", {"metadata": {"name": "x"}}, "admission-ending", "configmaps"),
    Case("job over quota", JOB, "admission-quota", "jobs", "batch"),
    Case(
        "node port in quota",
        {"metadata": {"name": "x"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}},
        "admission-quota",
        "services",
    ),
    Case(
        "node ports over quota",
        {
            "metadata": {"name": "x"},
            "spec": {"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]},
        },
        "admission-quota",
        "services",
    ),
    Case(
        "load balancer over quota",
        {
            "metadata": {"name": "x"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "allocateLoadBalancerNodePorts": False},
        },
        "admission-quota",
        "services",
    ),
    Case(
        "ingress",
        {"metadata": {"name": "x"}, "spec": {"defaultBackend": BACKEND}},
        resource="ingresses",
        group="networking.k8s.io",
    ),
    Case(
        "second default priority",
        {"metadata": {"name": "x"}, "value": 1, "globalDefault": True},
        "",
        "priorityclasses",
        "scheduling.k8s.io",
    ),
]
CASES = [*POD_CASES, *LIMIT_CASES, *QUOTA_CASES, *OTHER_CASES]
