"""Cases of Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers."""

from __future__ import annotations

import copy
from typing import Any

from tests.api.differential.cases_service import of
from tests.api.differential.changes import both, set_
from tests.api.differential.pods import CONTAINER
from tests.api.differential.verdict import Case

from torchyard.api.objects import Object

TEMPLATE: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
SELECTOR: Object = {"matchLabels": {"a": "b"}}
KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")


def workload(kind: str, /, name: str = "w", pod: Object | None = None, **spec: Any) -> Object:
    template = copy.deepcopy(TEMPLATE)
    template["spec"].update(pod or {})
    return of("apps/v1", kind, name=name, spec={"selector": copy.deepcopy(SELECTOR), "template": template, **spec})


def controller(**spec: Any) -> Object:
    return of("v1", "ReplicationController", spec={"template": copy.deepcopy(TEMPLATE), **spec})


def claim(name: str, **spec: Any) -> Object:
    sized = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": {**sized, **spec}}


GOOD: dict[str, Object] = {
    **{f"minimal {kind}": workload(kind) for kind in KINDS},
    "a name with dots": workload("Deployment", name="a.b"),
    "a recreated deployment": workload("Deployment", strategy={"type": "Recreate"}),
    "a rolling deployment": workload(
        "Deployment", strategy={"rollingUpdate": {"maxSurge": "200%", "maxUnavailable": 0}}
    ),
    "a paused deployment": workload("Deployment", paused=True, replicas=0, minReadySeconds=5),
    "a stateful set with claims": workload(
        "StatefulSet",
        pod={
            "containers": [{**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v"}],
        },
        volumeClaimTemplates=[claim("v")],
        serviceName="s",
    ),
    "a stateful set that waits": workload("StatefulSet", updateStrategy={"type": "OnDelete"}),
    "a stateful set in part": workload(
        "StatefulSet", updateStrategy={"rollingUpdate": {"partition": 2, "maxUnavailable": 2}}
    ),
    "a stateful set that keeps all": workload("StatefulSet", revisionHistoryLimit=-1),
    "a daemon set that surges": workload(
        "DaemonSet", updateStrategy={"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}}
    ),
    "a daemon set that waits": workload("DaemonSet", updateStrategy={"type": "OnDelete"}),
    "a daemon set that waits, with numbers": workload(
        "DaemonSet", updateStrategy={"type": "OnDelete", "rollingUpdate": {}}
    ),
    "a claim of another name": workload(
        "StatefulSet",
        volumeClaimTemplates=[
            {
                "apiVersion": "x/y",
                "kind": "Z",
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }
        ],
    ),
    "a controller": controller(),
    "a controller with a selector": controller(selector={"a": "b"}, replicas=3),
    "a template": of("v1", "PodTemplate", template=copy.deepcopy(TEMPLATE)),
    "a template with warnings": workload(
        "Deployment", pod={"terminationGracePeriodSeconds": -1, "nodeSelector": {"beta.kubernetes.io/os": "x"}}
    ),
    "a revision": of("apps/v1", "ControllerRevision", revision=1, data={"a": 1}),
    "host network without host ports": workload(
        "Deployment", pod={"hostNetwork": True, "containers": [{**CONTAINER, "ports": [{"containerPort": 1}]}]}
    ),
}

BAD: dict[str, Object] = {}
for _kind in KINDS:
    BAD |= {
        f"{_kind} of nothing": of("apps/v1", _kind, spec={}),
        f"{_kind} of everything": workload(_kind, selector={}),
        f"{_kind} of others": workload(_kind, selector={"matchLabels": {"a": "c"}}),
        f"{_kind} with a bad selector": workload(
            _kind, selector={"matchExpressions": [{"key": "", "operator": "X"}]}, minReadySeconds=-1
        ),
        f"{_kind} that ends": workload(_kind, name="a.b.C", pod={"restartPolicy": "Never", "activeDeadlineSeconds": 5}),
        f"{_kind} of bad pods": workload(
            _kind, pod={"containers": [{"name": "A", "image": "", "volumeMounts": [{"name": "z", "mountPath": "/z"}]}]}
        ),
    }
BAD |= {
    "deployment numbers": workload(
        "Deployment",
        replicas=-1,
        minReadySeconds=-1,
        revisionHistoryLimit=-1,
        progressDeadlineSeconds=-1,
        strategy={"type": "X"},
    ),
    "recreated and rolling": workload("Deployment", strategy={"type": "Recreate", "rollingUpdate": {}}),
    "rolling nowhere": workload(
        "Deployment", minReadySeconds=700, strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}
    ),
    "rolling oddly": workload("Deployment", strategy={"rollingUpdate": {"maxSurge": -1, "maxUnavailable": "x"}}),
    "rolling too far": workload("Deployment", strategy={"rollingUpdate": {"maxUnavailable": "200%"}}),
    "stateful numbers": workload(
        "StatefulSet",
        replicas=-1,
        minReadySeconds=-1,
        podManagementPolicy="X",
        updateStrategy={"type": "X"},
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "X"},
        ordinals={"start": -1},
        serviceName="A",
        volumeClaimTemplates=[{"metadata": {"name": "A"}, "spec": {}}],
    ),
    "stateful with two strategies": workload(
        "StatefulSet", updateStrategy={"type": "OnDelete", "rollingUpdate": {"partition": 1}}
    ),
    "stateful in no part": workload("StatefulSet", updateStrategy={"rollingUpdate": {"partition": -1}}),
    "stateful volumes and claims": workload(
        "StatefulSet", pod={"volumes": [{"name": "A"}, {"name": "C"}]}, volumeClaimTemplates=[claim("A")]
    ),
    "daemon numbers": workload("DaemonSet", minReadySeconds=-1, revisionHistoryLimit=-1, updateStrategy={"type": "X"}),
    "daemons that surge and stay away": workload(
        "DaemonSet", updateStrategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    ),
    "daemons that do neither": workload(
        "DaemonSet", updateStrategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}
    ),
    "daemons that do it oddly": workload(
        "DaemonSet", updateStrategy={"rollingUpdate": {"maxSurge": "x", "maxUnavailable": "200%"}}
    ),
    "a controller of nothing": of("v1", "ReplicationController", spec={}),
    "a controller": controller(
        selector={"x": "y"},
        replicas=-1,
        minReadySeconds=-1,
        template={
            **TEMPLATE,
            "spec": {"containers": [CONTAINER], "restartPolicy": "Never", "activeDeadlineSeconds": 5},
        },
    ),
    "a revision of nothing": of("apps/v1", "ControllerRevision", revision=-1),
    "a template of nothing": of("v1", "PodTemplate", template={}),
    "a template with old annotations": of(
        "v1",
        "PodTemplate",
        template={
            "metadata": {"annotations": {"a b": "c"}},
            "spec": {"containers": [CONTAINER], "ephemeralContainers": [{"name": "e", "image": "i"}]},
        },
    ),
}

COUNTS: Object = {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3, "updatedReplicas": 2, "collisionCount": -1}

UPDATES: list[Case] = []
for _kind in KINDS:
    UPDATES += [
        Case(f"replicas and image of {_kind}", workload(_kind), set_("spec.template.spec.containers.0.image", "x")),
        Case(
            f"the selector of {_kind}",
            workload(_kind),
            both(set_("spec.selector", {"matchLabels": {"c": "d"}}), set_("spec.template.metadata.labels", {"c": "d"})),
        ),
        Case(f"the status of {_kind} by the main endpoint", workload(_kind), set_("status.observedGeneration", 9)),
        Case(
            f"the spec of {_kind} by the status endpoint",
            workload(_kind),
            set_("spec.minReadySeconds", 9),
            part="status",
        ),
    ]
UPDATES += [
    Case(
        "deployment counts",
        workload("Deployment"),
        set_("status", {**COUNTS, "unavailableReplicas": -1}),
        part="status",
    ),
    Case(
        "replica set counts",
        workload("ReplicaSet"),
        set_("status", {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3, "fullyLabeledReplicas": 4}),
        part="status",
    ),
    Case("stateful counts", workload("StatefulSet"), set_("status", {**COUNTS, "currentReplicas": 4}), part="status"),
    Case(
        "daemon counts",
        workload("DaemonSet"),
        set_(
            "status",
            {
                "currentNumberScheduled": -1,
                "numberMisscheduled": -1,
                "desiredNumberScheduled": -1,
                "numberReady": -1,
                "collisionCount": -1,
            },
        ),
        part="status",
    ),
    Case(
        "what may change in a stateful set",
        workload("StatefulSet"),
        both(
            set_("spec.replicas", 5),
            set_("spec.minReadySeconds", 5),
            set_("spec.revisionHistoryLimit", 5),
            set_("spec.updateStrategy", {"type": "OnDelete"}),
        ),
    ),
    Case("what may not change in a stateful set", workload("StatefulSet"), set_("spec.serviceName", "other")),
    Case(
        "the selector of a controller",
        controller(),
        both(set_("spec.selector", {"c": "d"}), set_("spec.template.metadata.labels", {"c": "d"})),
    ),
    Case(
        "the data of a revision",
        of("apps/v1", "ControllerRevision", revision=1, data={"a": 1}),
        both(set_("data", {"a": 2}), set_("revision", 2)),
    ),
]

CASES = [Case(f"good: {name}", obj) for name, obj in GOOD.items()]
CASES += [Case(f"bad: {name}", obj) for name, obj in BAD.items()]
CASES += UPDATES
