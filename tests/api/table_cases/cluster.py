"""Nodes, events, quotas and small core kinds."""

from __future__ import annotations

from typing import Any

from tests.api.table_cases.base import LATER, LONG_AGO, TEMPLATE, condition

from torchyard.api.objects import Object


def node(name: str, *, labels: Object | None = None, status: Object | None = None, **spec: Any) -> Object:
    obj: Object = {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}
    return {**obj, "status": status} if status else obj


INFO = dict.fromkeys(("machineID", "systemUUID", "bootID", "kubeProxyVersion", "operatingSystem", "architecture"), "")
NODES = [
    node("new"),
    node(
        "ready",
        labels={"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu"},
        status={
            "conditions": [condition("Ready")],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "1.2.3.4"}],
            "nodeInfo": {
                **INFO,
                "kubeletVersion": "v1.34.4",
                "osImage": "Debian 12",
                "kernelVersion": "6.1",
                "containerRuntimeVersion": "containerd://2.0",
            },
        },
    ),
    node("cordoned", unschedulable=True, status={"conditions": [condition("Ready", "False")]}),
    node("lost", status={"conditions": [condition("Ready", "Unknown")]}),
]


def event(name: str, **more: Any) -> Object:
    involved = {"kind": "Pod", "name": "p", "namespace": "tables"}
    return {"metadata": {"name": name}, "involvedObject": involved, "type": "Normal", "reason": "Why", **more}


EVENTS = [
    event("old", firstTimestamp=LONG_AGO, lastTimestamp=LATER, count=4, message=" text\n"),
    event("single", firstTimestamp=LONG_AGO, source={"component": "kubelet", "host": "n1"}, message="one"),
    event(
        "new",
        eventTime="2024-03-01T10:00:00.000000Z",
        reportingComponent="ctl",
        reportingInstance="ctl-0",
        action="Do",
    ),
    event(
        "series",
        eventTime="2024-03-01T10:00:00.000000Z",
        reportingComponent="ctl",
        reportingInstance="ctl-0",
        action="Do",
        series={"count": 7, "lastObservedTime": "2024-03-01T11:00:00.000000Z"},
    ),
    event(
        "part",
        involvedObject={"kind": "Pod", "name": "p", "namespace": "tables", "fieldPath": "spec.containers{a}"},
        firstTimestamp=LONG_AGO,
        source={"component": "x"},
    ),
    event("nameless", involvedObject={"kind": "Node", "namespace": "tables"}, firstTimestamp=LONG_AGO),
]
QUOTAS: list[Object] = [
    {"metadata": {"name": "new"}, "spec": {"hard": {"pods": "3"}}},
    {
        "metadata": {"name": "used"},
        "spec": {"hard": {"pods": "3"}},
        "status": {
            "hard": {"pods": "3", "requests.cpu": "2", "limits.cpu": "4", "limits.memory": "1Gi"},
            "used": {"pods": "1", "requests.cpu": "500m", "limits.memory": "512Mi"},
        },
    },
]
CORE: dict[str, list[Object]] = {
    "configmaps": [
        {"metadata": {"name": "empty"}},
        {"metadata": {"name": "some"}, "data": {"a": "1", "b": "2"}, "binaryData": {"c": "AA=="}},
    ],
    "secrets": [
        {"metadata": {"name": "plain"}, "data": {"a": "AA=="}},
        {"metadata": {"name": "typed"}, "type": "example.com/x"},
    ],
    "serviceaccounts": [
        {"metadata": {"name": "plain"}},
        {"metadata": {"name": "some"}, "secrets": [{"name": "a"}, {"name": "b"}]},
    ],
    "podtemplates": [
        {"metadata": {"name": "labelled"}, "template": TEMPLATE},
        {"metadata": {"name": "bare"}, "template": {"spec": TEMPLATE["spec"]}},
    ],
    "replicationcontrollers": [
        {"metadata": {"name": "rc"}, "spec": {"replicas": 2, "selector": {"app": "x"}, "template": TEMPLATE}},
        {
            "metadata": {"name": "some"},
            "spec": {"replicas": 2, "selector": {"app": "x"}, "template": TEMPLATE},
            "status": {"replicas": 2, "readyReplicas": 1},
        },
    ],
    "limitranges": [{"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}],
}
