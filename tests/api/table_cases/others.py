"""Leases, priorities, flow control, devices."""

from __future__ import annotations

from tests.api.table_cases.access import BINDINGS, RBAC

from torchyard.api.objects import Object

OTHERS: dict[str, list[Object]] = {
    "node.k8s.io/v1 runtimeclasses": [{"metadata": {"name": "r"}, "handler": "runc"}],
    "scheduling.k8s.io/v1 priorityclasses": [
        {"metadata": {"name": "low"}, "value": -5},
        {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never", "description": "x"},
    ],
    "flowcontrol.apiserver.k8s.io/v1 prioritylevelconfigurations": [
        {
            "metadata": {"name": "rejecting"},
            "spec": {
                "type": "Limited",
                "limited": {"nominalConcurrencyShares": 3, "limitResponse": {"type": "Reject"}},
            },
        },
    ],
    "flowcontrol.apiserver.k8s.io/v1 flowschemas": [
        {
            "metadata": {"name": "plain"},
            "spec": {"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 77},
        },
    ],
    "resource.k8s.io/v1 deviceclasses": [{"metadata": {"name": "gpu"}, "spec": {}}],
    "resource.k8s.io/v1 resourceslices": [
        {
            "metadata": {"name": "on-node"},
            "spec": {
                "nodeName": "n1",
                "driver": "d.example.com",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            },
        },
        {
            "metadata": {"name": "anywhere"},
            "spec": {
                "allNodes": True,
                "driver": "d.example.com",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            },
        },
    ],
}
NAMESPACED_OTHERS: dict[str, list[Object]] = {
    "coordination.k8s.io/v1 leases": [
        {"metadata": {"name": "free"}, "spec": {}},
        {"metadata": {"name": "held"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    ],
    "resource.k8s.io/v1 resourceclaims": [
        {"metadata": {"name": "pending"}, "spec": {}},
        {"metadata": {"name": "allocated"}, "spec": {}, "status": {"allocation": {}}},
        {
            "metadata": {"name": "reserved"},
            "spec": {},
            "status": {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]},
        },
        {"metadata": {"name": "going"}, "spec": {}, "status": {"allocation": {}}, "terminating": True},
    ],
    "resource.k8s.io/v1 resourceclaimtemplates": [{"metadata": {"name": "t"}, "spec": {"spec": {}}}],
    f"{RBAC}/v1 rolebindings": BINDINGS,
    f"{RBAC}/v1 roles": [{"metadata": {"name": "r"}, "rules": []}],
}
