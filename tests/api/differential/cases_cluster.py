"""Cases of namespaces, nodes, secrets, quotas, roles, events and the other small core kinds."""

from __future__ import annotations

from typing import Any

from tests.api.differential.cases_service import of
from tests.api.differential.changes import both, set_
from tests.api.differential.verdict import Case

from torchyard.api.objects import Object

TIME = "2026-01-01T00:00:00.000000Z"
POD: Object = {"kind": "Pod", "name": "p", "namespace": "diff"}
TARGET: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
HOOK: Object = {
    "name": "a.b.c",
    "clientConfig": {"url": "https://x/y"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}


def secret(kind: str, /, **data: str) -> Object:
    return of("v1", "Secret", type=kind, data={key.replace("__", "."): text for key, text in data.items()})


def core(kind: str, /, **body: Any) -> Object:
    return of("v1", kind, **body)


def rbac(kind: str, /, **body: Any) -> Object:
    return of("rbac.authorization.k8s.io/v1", kind, **body)


def scaler(version: str = "v2", **spec: Any) -> Object:
    full = {"scaleTargetRef": dict(TARGET), "maxReplicas": 3, **spec}
    return of(f"autoscaling/{version}", "HorizontalPodAutoscaler", spec=full)


def hooks(kind: str, *webhooks: Object) -> Object:
    return of("admissionregistration.k8s.io/v1", f"{kind}WebhookConfiguration", webhooks=list(webhooks))


def limits(*some: Object) -> Object:
    return core("LimitRange", spec={"limits": list(some)})


def metric(kind: str, **source: Any) -> Object:
    return {"type": kind, kind[:1].lower() + kind[1:]: source}


GOOD: dict[str, Object] = {
    "a namespace": core("Namespace", name="some-namespace"),
    "a namespace with labels": core("Namespace", name="n", spec={"finalizers": ["a.b/c"]}),
    "a node": core(
        "Node",
        name="n",
        spec={"podCIDR": "1.2.3.0/24", "taints": [{"key": "a", "effect": "NoExecute"}]},
        status={"capacity": {"cpu": "1000m"}},
    ),
    "a node with two ranges": core("Node", spec={"podCIDR": "1.2.3.0/24", "podCIDRs": ["1.2.4.0/24"]}),
    "an account": core("ServiceAccount", secrets=[{"name": "a"}], automountServiceAccountToken=False),
    "a secret": core("Secret", stringData={"a": "b"}, data={"a": "eA==", "c": "eA=="}),
    "an empty secret": core("Secret"),
    "a docker secret": secret("kubernetes.io/dockerconfigjson", **{"__dockerconfigjson": "e30="}),
    "a secret of any type": secret("x.y/z"),
    "a config map": core("ConfigMap", data={"a": "b", "a.b-c_d": ""}, binaryData={"x": "eA=="}, immutable=True),
    "a quota": core(
        "ResourceQuota",
        spec={
            "hard": {
                "pods": "1",
                "cpu": "1000m",
                "requests.nvidia.com/gpu": 1,
                "count/jobs.batch": "5",
                "requests.storage": "1Ti",
            }
        },
    ),
    "a quota with scopes": core(
        "ResourceQuota",
        spec={
            "hard": {"pods": "1"},
            "scopes": ["BestEffort"],
            "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}]},
        },
    ),
    "limits": limits({"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}, "min": {"cpu": "100m"}}),
    "limits by maximum": limits({"type": "Container", "max": {"memory": "1024Mi"}}),
    "limits by minimum": limits({"type": "Container", "min": {"memory": "1Gi"}}),
    "limits of claims": limits(
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, {"type": "Pod", "max": {"cpu": "1"}}
    ),
    "a lease": of(
        "coordination.k8s.io/v1", "Lease", spec={"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": TIME}
    ),
    "an empty lease": of("coordination.k8s.io/v1", "Lease"),
    "a priority": of("scheduling.k8s.io/v1", "PriorityClass", value=5),
    "a priority that waits": of(
        "scheduling.k8s.io/v1", "PriorityClass", value=-5, preemptionPolicy="Never", description="x"
    ),
    "a budget": of(
        "policy/v1", "PodDisruptionBudget", spec={"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    ),
    "a budget in percent": of("policy/v1", "PodDisruptionBudget", spec={"maxUnavailable": "50%", "selector": {}}),
    "a role": rbac("Role", rules=[{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]),
    "a role with an odd name": rbac(
        "ClusterRole", name="system:a B", rules=[{"verbs": ["get"], "nonResourceURLs": ["/x", "*"]}]
    ),
    "an aggregate": rbac("ClusterRole", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}),
    "a binding": rbac(
        "RoleBinding",
        roleRef={"kind": "Role", "name": "x"},
        subjects=[{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "x"}],
    ),
    "a cluster binding": rbac(
        "ClusterRoleBinding",
        roleRef={"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"},
        subjects=[{"kind": "Group", "name": "g"}],
    ),
    "an autoscaler": scaler(),
    "an autoscaler of a controller": scaler(
        scaleTargetRef={"kind": "ReplicationController", "name": "x", "apiVersion": "v1"}
    ),
    "an autoscaler that behaves": scaler(behavior={}),
    "an autoscaler that behaves so": scaler(
        behavior={"scaleDown": {"selectPolicy": "Disabled"}, "scaleUp": {"stabilizationWindowSeconds": 5}}
    ),
    "an autoscaler of memory": scaler(
        metrics=[metric("Resource", name="memory", target={"type": "AverageValue", "averageValue": "1024Mi"})]
    ),
    "webhooks": hooks(
        "Validating",
        {
            **HOOK,
            "rules": [
                {"apiGroups": ["*"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods", "pods/*"]}
            ],
        },
        {**HOOK, "name": "d.e.f", "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/a/b"}}},
    ),
    "mutating webhooks": hooks("Mutating", HOOK),
    "an aggregated API": of(
        "apiregistration.k8s.io/v1",
        "APIService",
        name="v1.a.b",
        spec={
            "group": "a.b",
            "version": "v1",
            "groupPriorityMinimum": 5,
            "versionPriority": 5,
            "service": {"name": "s", "namespace": "n"},
        },
    ),
    "a runtime": of("node.k8s.io/v1", "RuntimeClass", handler="x", overhead={"podFixed": {"cpu": "1000m"}}),
    "an event": core("Event", involvedObject=POD, reason="R", message="m"),
    "an event with a time": core(
        "Event",
        involvedObject=POD,
        eventTime=TIME,
        reportingComponent="a.b/c",
        reportingInstance="i",
        action="A",
        reason="R",
    ),
}

BAD: dict[str, Object] = {
    "a namespace": core("Namespace", name="a.b", spec={"finalizers": ["a", "x y/z"]}),
    "a node": core(
        "Node",
        spec={
            "taints": [
                {"key": "a b", "value": "x y", "effect": "X"},
                {"key": "a"},
                {"key": "a", "effect": "NoSchedule"},
                {"key": "a", "effect": "NoSchedule"},
            ],
            "podCIDRs": ["1.2.3.0/24", "1.2.4.0/24"],
        },
        status={"capacity": {"nvidia.com/gpu": "1500m", "memory": "-1"}},
    ),
    "an account": core("ServiceAccount", name="A"),
    "a token secret": secret("kubernetes.io/service-account-token"),
    "a docker secret without": secret("kubernetes.io/dockercfg"),
    "a docker secret with": secret("kubernetes.io/dockercfg", **{"__dockercfg": "eA=="}),
    "a docker config without": secret("kubernetes.io/dockerconfigjson"),
    "a docker config of a list": secret("kubernetes.io/dockerconfigjson", **{"__dockerconfigjson": "W10="}),
    "a docker config of nothing": secret("kubernetes.io/dockerconfigjson", **{"__dockerconfigjson": ""}),
    "a password": secret("kubernetes.io/basic-auth"),
    "a key": secret("kubernetes.io/ssh-auth"),
    "a certificate": secret("kubernetes.io/tls"),
    "keys of a secret": core("Secret", data={"a b": "eA==", "..a": "eA=="}),
    "a large secret": core("Secret", data={"a": "A" * 1500000}),
    "keys of a config map": core("ConfigMap", data={"a b": "c", "x": "y"}, binaryData={"x": "eA==", "..": "eA=="}),
    "a large config map": core("ConfigMap", data={"a": "A" * 1100000}),
    "a quota": core(
        "ResourceQuota",
        spec={
            "hard": {"foo": "1", "pods": "1.5", "a b": "1", "cpu": "-1"},
            "scopes": ["X", "BestEffort", "NotBestEffort"],
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "X", "operator": "In"},
                    {"scopeName": "Terminating", "operator": "In", "values": ["a"]},
                    {"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]},
                    {"scopeName": "PriorityClass", "operator": "X"},
                ]
            },
        },
    ),
    "a quota of claims by pods": core(
        "ResourceQuota", spec={"hard": {"requests.storage": "1", "services": "1"}, "scopes": ["Terminating"]}
    ),
    "limits": limits(
        {"type": "X", "max": {"foo": "1"}},
        {"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}},
        {"type": "Pod"},
        {"type": "PersistentVolumeClaim"},
        {
            "type": "Container",
            "min": {"cpu": "2"},
            "max": {"cpu": "1"},
            "default": {"cpu": "3"},
            "defaultRequest": {"cpu": "4"},
            "maxLimitRequestRatio": {"cpu": "500m", "memory": "2"},
        },
    ),
    "limits of devices": limits(
        {
            "type": "Container",
            "default": {"a.b/c": "2"},
            "defaultRequest": {"a.b/c": "1"},
            "min": {"cpu": "1"},
            "max": {"cpu": "2"},
            "maxLimitRequestRatio": {"cpu": "3"},
        }
    ),
    "a lease": of("coordination.k8s.io/v1", "Lease", spec={"leaseDurationSeconds": 0, "leaseTransitions": -1}),
    "a priority": of("scheduling.k8s.io/v1", "PriorityClass", value=2000000000, preemptionPolicy="X"),
    "a priority of the system": of("scheduling.k8s.io/v1", "PriorityClass", name="system-foo", value=5),
    "a priority of the system's": of("scheduling.k8s.io/v1", "PriorityClass", name="system-node-critical", value=5),
    "a budget": of(
        "policy/v1",
        "PodDisruptionBudget",
        spec={
            "minAvailable": "x",
            "maxUnavailable": -1,
            "unhealthyPodEvictionPolicy": "X",
            "selector": {"matchLabels": {"a b": "c"}},
        },
    ),
    "a budget of too much": of("policy/v1", "PodDisruptionBudget", spec={"maxUnavailable": "200%"}),
    "a role": rbac(
        "Role",
        rules=[
            {"verbs": []},
            {"verbs": ["get"], "nonResourceURLs": ["/x"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": []},
            {"verbs": ["get"], "resources": ["pods"]},
        ],
    ),
    "a cluster role": rbac(
        "ClusterRole",
        rules=[{"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["a"], "apiGroups": [""]}],
        aggregationRule={"clusterRoleSelectors": []},
    ),
    "an aggregate": rbac("ClusterRole", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a b": "c"}}]}),
    "a role with a bad name": rbac("Role", name="a/b%", rules=[]),
    "a binding": rbac(
        "RoleBinding",
        roleRef={"kind": "X", "name": "", "apiGroup": "foo"},
        subjects=[
            {"kind": "X", "name": ""},
            {"kind": "ServiceAccount", "name": "A", "namespace": ""},
            {"kind": "User", "name": "a", "apiGroup": "foo"},
            {"kind": "ServiceAccount", "name": "a", "apiGroup": "foo"},
        ],
    ),
    "a cluster binding": rbac(
        "ClusterRoleBinding",
        roleRef={"kind": "Role", "name": "a/b"},
        subjects=[{"kind": "ServiceAccount", "name": "s"}],
    ),
    "an autoscaler of nothing": scaler(scaleTargetRef={"kind": "", "name": ""}, maxReplicas=0, minReplicas=0),
    "an autoscaler": scaler(
        scaleTargetRef={"kind": "a/b", "name": "c/d", "apiVersion": "a/b/c"},
        maxReplicas=1,
        minReplicas=5,
        metrics=[
            {"type": "X"},
            {"type": ""},
            {"type": "Resource"},
            metric("Resource", name="", target={"type": "Utilization", "averageUtilization": 0}),
            metric(
                "Resource", name="cpu", target={"type": "AverageValue", "averageValue": "-1", "averageUtilization": 1}
            ),
            metric("Pods", metric={"name": ""}, target={"type": "Value"}),
            metric("Object", describedObject={"kind": "", "name": ""}, metric={"name": "a/b"}, target={"type": "X"}),
            metric("External", metric={"name": "x"}, target={"type": "Value", "value": "1", "averageValue": "1"}),
            metric("External", metric={"name": "x"}, target={"type": ""}),
            metric("ContainerResource", name="cpu", container="", target={"type": "Utilization"}),
            {
                **metric("Resource", name="cpu", target={"type": "Utilization", "averageUtilization": 1}),
                "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "1"}},
            },
        ],
        behavior={
            "scaleUp": {
                "stabilizationWindowSeconds": -1,
                "selectPolicy": "X",
                "policies": [
                    {"type": "X", "value": 0, "periodSeconds": 0},
                    {"type": "Pods", "value": 1, "periodSeconds": 1801},
                ],
            },
            "scaleDown": {"stabilizationWindowSeconds": 3601},
        },
    ),
    "webhooks": hooks(
        "Mutating",
        {
            "name": "a",
            "clientConfig": {},
            "sideEffects": "X",
            "admissionReviewVersions": [],
            "failurePolicy": "X",
            "matchPolicy": "X",
            "timeoutSeconds": 31,
            "reinvocationPolicy": "X",
            "rules": [
                {"apiGroups": [], "apiVersions": [], "operations": ["X"], "resources": [], "scope": "X"},
                {
                    "apiGroups": ["", "*"],
                    "apiVersions": ["*", "a"],
                    "operations": ["*", "CREATE"],
                    "resources": ["*/*", "a"],
                },
            ],
            "namespaceSelector": {"matchLabels": {"a b": "c"}},
            "objectSelector": {"matchLabels": {"a b": "c"}},
            "matchConditions": [
                {"name": "", "expression": "true"},
                {"name": "a", "expression": ""},
                {"name": "a", "expression": "true"},
            ],
        },
        {**HOOK, "clientConfig": {"url": "http://x", "service": {"name": "", "namespace": ""}}},
        {**HOOK, "clientConfig": {"url": "http://x"}, "admissionReviewVersions": ["v0", "v0", "1"]},
        {**HOOK, "clientConfig": {"url": "https://u:p@x/y?a#b"}},
        {**HOOK, "clientConfig": {"service": {"name": "", "namespace": "", "path": "x", "port": 0}}},
    ),
    "a webhook without effects": hooks(
        "Validating",
        {"name": "a.b.c", "clientConfig": {"url": "https://x"}, "admissionReviewVersions": ["v1"]}
        | {"sideEffects": "Some"},
    ),
    "an aggregated API of nothing": of(
        "apiregistration.k8s.io/v1", "APIService", spec={"groupPriorityMinimum": 0, "versionPriority": 0}
    ),
    "an aggregated API": of(
        "apiregistration.k8s.io/v1",
        "APIService",
        name="V.A",
        spec={
            "group": "A",
            "version": "V",
            "groupPriorityMinimum": 50000,
            "versionPriority": 5000,
            "caBundle": "eA==",
            "insecureSkipTLSVerify": True,
            "service": {},
        },
    ),
    "a runtime": of(
        "node.k8s.io/v1",
        "RuntimeClass",
        handler="A",
        overhead={"podFixed": {"foo": "-1"}},
        scheduling={"nodeSelector": {"a b": "c"}, "tolerations": [{"operator": "X"}, {"key": "a"}, {"key": "a"}]},
    ),
    "an event of elsewhere": core("Event", involvedObject={**POD, "namespace": "other"}),
    "an event of nowhere": core("Event", involvedObject={"kind": "Node", "name": "n"}),
    "an event that says nothing": core("Event", involvedObject=POD, eventTime=TIME),
    "an event that says too much": core(
        "Event",
        involvedObject=POD,
        eventTime=TIME,
        reportingComponent="a b",
        reportingInstance="x" * 129,
        action="x" * 129,
        reason="x" * 129,
        message="x" * 1025,
    ),
}

UPDATES: list[Case] = [
    Case("labels of a namespace", core("Namespace", name="diff-ns"), set_("metadata.labels", {"a": "b"})),
    Case("finalizers of a namespace", core("Namespace", name="diff-ns2"), set_("spec.finalizers", [])),
    Case(
        "the phase of a namespace",
        core("Namespace", name="diff-ns3"),
        set_("status.phase", "Terminating"),
        part="status",
    ),
    Case(
        "a node's range",
        core("Node", name="diff-n", spec={"podCIDR": "1.2.3.0/24"}),
        both(set_("spec.podCIDR", "1.2.4.0/24"), set_("spec.podCIDRs", ["1.2.4.0/24"])),
    ),
    Case("a node's provider", core("Node", name="diff-n", spec={"providerID": "a"}), set_("spec.providerID", "b")),
    Case("a node's taints", core("Node", name="diff-n"), set_("spec.taints", [{"key": "a b", "effect": "X"}])),
    Case(
        "a node's status",
        core("Node", name="diff-n"),
        set_("status.addresses", [{"type": "Hostname", "address": "a"}] * 2),
        part="status",
    ),
    Case("a node without a schedule", core("Node", name="diff-n"), set_("spec.unschedulable", True)),
    Case(
        "an immutable config map",
        core("ConfigMap", data={"a": "b"}, immutable=True),
        both(set_("data", {"a": "c"}), set_("binaryData", {"x": "eA=="}), set_("immutable", None)),
    ),
    Case("a config map", core("ConfigMap", data={"a": "b"}), set_("data", {"a b": "c"})),
    Case(
        "an immutable secret",
        core("Secret", data={"a": "eA=="}, immutable=True),
        both(set_("data", {"a": "eQ=="}), set_("immutable", False)),
    ),
    Case("the type of a secret", core("Secret"), set_("type", "x")),
    Case(
        "the scopes of a quota",
        core("ResourceQuota", spec={"hard": {"pods": "1"}}),
        set_("spec.scopes", ["BestEffort"]),
    ),
    Case(
        "the status of a quota",
        core("ResourceQuota", spec={"hard": {"pods": "1"}}),
        set_("status", {"hard": {"pods": "1.5"}, "used": {"foo": "1"}}),
        part="status",
    ),
    Case(
        "the status of a quota by the main endpoint",
        core("ResourceQuota", spec={"hard": {"pods": "1"}}),
        set_("status", {"hard": {"pods": "1"}}),
    ),
    Case(
        "a priority's value",
        of("scheduling.k8s.io/v1", "PriorityClass", name="diff-p", value=5),
        both(set_("value", 6), set_("preemptionPolicy", "Never")),
    ),
    Case(
        "a priority's words",
        of("scheduling.k8s.io/v1", "PriorityClass", name="diff-p", value=5),
        set_("description", "x"),
    ),
    Case(
        "the role of a binding", rbac("RoleBinding", roleRef={"kind": "Role", "name": "x"}), set_("roleRef.name", "y")
    ),
    Case("a runtime's handler", of("node.k8s.io/v1", "RuntimeClass", name="diff-r", handler="x"), set_("handler", "y")),
    Case(
        "a lease",
        of("coordination.k8s.io/v1", "Lease", spec={"holderIdentity": "me"}),
        set_("spec.leaseTransitions", -1),
    ),
    Case(
        "a budget",
        of("policy/v1", "PodDisruptionBudget", spec={"minAvailable": 1, "selector": {}}),
        set_("spec.minAvailable", "200%"),
    ),
    Case(
        "the status of a budget",
        of("policy/v1", "PodDisruptionBudget", spec={"minAvailable": 1, "selector": {}}),
        set_("status", {"disruptionsAllowed": -1, "currentHealthy": -1, "desiredHealthy": -1, "expectedPods": -1}),
        part="status",
    ),
    Case("an autoscaler", scaler(), set_("spec.maxReplicas", 0)),
    Case(
        "the status of an autoscaler",
        scaler(),
        set_("status", {"currentReplicas": -1, "desiredReplicas": -1}),
        part="status",
    ),
    Case("webhooks", hooks("Validating", HOOK), set_("webhooks", [])),
]

CASES = [Case(f"good: {name}", obj) for name, obj in GOOD.items()]
CASES += [Case(f"bad: {name}", obj) for name, obj in BAD.items()]
CASES += UPDATES
