"""Jobs, workloads, autoscalers, disruption budgets."""

from __future__ import annotations

from typing import Any

from tests.api.table_cases.base import EXPRESSIONS, LATER, LONG_AGO, SELECTOR, TEMPLATE

from torchyard.api.objects import Object


def job(name: str, *conditions: str, spec: Object | None = None, **more: Any) -> Object:
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": TEMPLATE["spec"]["containers"]}}
    obj = {"metadata": {"name": name}, "spec": {"template": template, **(spec or {})}}
    times = more.pop("times", {"startTime": LONG_AGO})
    if conditions or more or times:
        stamped = [{"type": type_, "status": "True", "lastTransitionTime": LONG_AGO} for type_ in conditions]
        extra: Object = {key: more.pop(key) for key in ("succeeded", "failed") if key in more}
        obj["status"] = {"conditions": stamped, **times, **extra}
    return {**obj, **more}


DONE = {"startTime": LONG_AGO, "completionTime": LATER}
JOBS = [
    job("new", times={}),
    job("running", spec={"parallelism": 3}, times={"startTime": LONG_AGO}),
    job("many", spec={"parallelism": 3, "completions": 5}),
    job("queue", spec={"parallelism": 1}),
    job("complete", "SuccessCriteriaMet", "Complete", succeeded=1, times=DONE),
    job("failed", "FailureTarget", "Failed", failed=1),
    job("suspended", "Suspended", spec={"suspend": True}, times={}),
    job("failing", "FailureTarget"),
    job("succeeding", "SuccessCriteriaMet"),
    job("terminating", terminating=True),
]
CRON_TEMPLATE: Object = {
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": TEMPLATE["spec"]["containers"]}}}
}
CRON_JOBS: list[Object] = [
    {"metadata": {"name": "plain"}, "spec": {"schedule": "* * * * *", "jobTemplate": CRON_TEMPLATE}},
    {
        "metadata": {"name": "rich"},
        "spec": {
            "schedule": "0 1 * * *",
            "timeZone": "Etc/UTC",
            "suspend": True,
            "jobTemplate": {"spec": {**CRON_TEMPLATE["spec"]}},
        },
        "status": {"active": [{"name": "a"}, {"name": "b"}], "lastScheduleTime": LONG_AGO},
    },
]


def replicas(name: str, **status: Any) -> Object:
    spec: Object = {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE}
    return {"metadata": {"name": name}, "spec": spec, **({"status": status} if status else {})}


TIERED = {"metadata": {"labels": {"app": "x", "tier": "a", "z": ""}}, "spec": TEMPLATE["spec"]}
WORKLOADS: dict[str, list[Object]] = {
    "deployments": [
        replicas("new"),
        replicas("rolled", replicas=3, readyReplicas=2, updatedReplicas=3, availableReplicas=1),
        {"metadata": {"name": "selective"}, "spec": {"selector": EXPRESSIONS, "template": TIERED}},
    ],
    "replicasets": [replicas("new"), replicas("some", replicas=2, readyReplicas=1)],
    "statefulsets": [replicas("new"), replicas("some", replicas=3, readyReplicas=2)],
    "daemonsets": [
        {"metadata": {"name": "plain"}, "spec": {"selector": SELECTOR, "template": TEMPLATE}},
        {
            "metadata": {"name": "some"},
            "spec": {
                "selector": SELECTOR,
                "template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"b": "2", "a": "1"}}},
            },
            "status": {
                "desiredNumberScheduled": 5,
                "currentNumberScheduled": 4,
                "numberReady": 3,
                "updatedNumberScheduled": 2,
                "numberAvailable": 1,
                "numberMisscheduled": 0,
            },
        },
    ],
    "controllerrevisions": [
        {"metadata": {"name": "plain"}, "revision": 3, "data": {}},
        {
            "metadata": {
                "name": "owned",
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "1", "controller": True}
                ],
            },
            "revision": 12,
            "data": {},
        },
    ],
}


def metric(kind: str, **body: Any) -> Object:
    return {"type": kind, f"{kind[0].lower()}{kind[1:]}": body}


def autoscaler(name: str, metrics: list[Object], current: list[Object], **spec: Any) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": target, "maxReplicas": 5, "metrics": metrics, **spec},
        "status": {"currentReplicas": 2, "desiredReplicas": 2, "conditions": [], "currentMetrics": current},
    }


CPU = metric("Resource", name="cpu", target={"type": "Utilization", "averageUtilization": 80})
CPU_NOW = metric("Resource", name="cpu", current={"averageUtilization": 12, "averageValue": "20m"})
MEMORY = metric("Resource", name="memory", target={"type": "AverageValue", "averageValue": "1Gi"})
MEMORY_NOW = metric("Resource", name="memory", current={"averageValue": "512Mi"})
IN_CONTAINER = metric(
    "ContainerResource", name="cpu", container="a", target={"type": "Utilization", "averageUtilization": 50}
)
IN_CONTAINER_NOW = metric(
    "ContainerResource", name="cpu", container="a", current={"averageUtilization": 5, "averageValue": "1m"}
)
PER_POD = metric("Pods", metric={"name": "qps"}, target={"type": "AverageValue", "averageValue": "100"})
PER_POD_NOW = metric("Pods", metric={"name": "qps"}, current={"averageValue": "50"})
ON_OBJECT = metric(
    "Object",
    metric={"name": "qps"},
    describedObject={"kind": "Service", "name": "s"},
    target={"type": "Value", "value": "10"},
)
ON_OBJECT_NOW = metric(
    "Object", metric={"name": "qps"}, describedObject={"kind": "Service", "name": "s"}, current={"value": "5"}
)
EXTERNAL = metric("External", metric={"name": "queue"}, target={"type": "AverageValue", "averageValue": "30"})
EXTERNAL_NOW = metric("External", metric={"name": "queue"}, current={"averageValue": "10", "value": "20"})
EXTERNAL_VALUE = metric("External", metric={"name": "queue"}, target={"type": "Value", "value": "30"})
EXTERNAL_VALUE_NOW = metric("External", metric={"name": "queue"}, current={"value": "20"})
AUTOSCALERS = [
    autoscaler("cpu", [CPU], [], minReplicas=2),
    autoscaler("cpu-now", [CPU], [CPU_NOW]),
    autoscaler("memory", [MEMORY, IN_CONTAINER], [MEMORY_NOW, IN_CONTAINER_NOW]),
    autoscaler("memory-unknown", [MEMORY, IN_CONTAINER], []),
    autoscaler("pods", [PER_POD], [PER_POD_NOW]),
    autoscaler("pods-unknown", [PER_POD, ON_OBJECT], []),
    autoscaler("object", [ON_OBJECT], [ON_OBJECT_NOW]),
    autoscaler("external", [EXTERNAL], [EXTERNAL_NOW]),
    autoscaler("external-unknown", [EXTERNAL, EXTERNAL_VALUE], []),
    autoscaler("external-value", [EXTERNAL_VALUE], [EXTERNAL_VALUE_NOW]),
    autoscaler("four", [CPU, MEMORY, PER_POD, EXTERNAL], [CPU_NOW, MEMORY_NOW]),
]
BUDGETS: list[Object] = [
    {"metadata": {"name": "least"}, "spec": {"minAvailable": 2, "selector": SELECTOR}},
    {
        "metadata": {"name": "most"},
        "spec": {"maxUnavailable": "30%", "selector": SELECTOR},
        "status": {
            "disruptionsAllowed": 3,
            "currentHealthy": 3,
            "desiredHealthy": 2,
            "expectedPods": 3,
            "observedGeneration": 1,
        },
    },
]
