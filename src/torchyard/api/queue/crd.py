"""The CustomResourceDefinitions of the queue kinds, in both versions, as clients of Kueue expect them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

from torchyard.api.objects import Object
from torchyard.api.queue import names, schemas
from torchyard.api.queue.names import Kind
from torchyard.api.schema.structural import INT64, STRING, record

_SCHEMAS: dict[Kind, Callable[[], Object]] = {
    names.FLAVOR: schemas.flavor,
    names.CLUSTER_QUEUE: schemas.cluster_queue,
    names.LOCAL_QUEUE: schemas.local_queue,
    names.WORKLOAD: schemas.workload,
    names.PRIORITY_CLASS: schemas.priority_class,
    names.COHORT: schemas.cohort,
    names.CHECK: schemas.check,
}
_SAID = {
    names.FLAVOR: "A kind of hardware.",
    names.CLUSTER_QUEUE: "A pool of quota.",
    names.LOCAL_QUEUE: "A namespace's door to a ClusterQueue.",
    names.WORKLOAD: "What is admitted as a whole: the pods of one job.",
    names.PRIORITY_CLASS: "A priority in queues, apart from that of pods.",
    names.COHORT: "Queues that lend each other what they do not use.",
    names.CHECK: "Something else that must agree before a workload starts.",
}


def _condition(type: str) -> str:
    return f".status.conditions[?(@.type=='{type}')].status"


def _column(name: str, path: str, type: str = "string", *, wide: bool = False) -> Object:
    made: Object = {"name": name, "type": type, "jsonPath": path}
    return {**made, "priority": 1} if wide else made


def _columns(kind: Kind, version: str) -> list[Object]:
    cohort = ".spec.cohort" if version == names.OLD else ".spec.cohortName"
    pending = _column("Pending Workloads", ".status.pendingWorkloads", "integer")
    admitted = _column("Admitted Workloads", ".status.admittedWorkloads", "integer")
    age = _column("Age", ".metadata.creationTimestamp", "date")
    found = {
        names.CLUSTER_QUEUE: [
            _column("Cohort", cohort),
            _column("Strategy", ".spec.queueingStrategy", wide=True),
            pending,
            {**admitted, "priority": 1},
        ],
        names.LOCAL_QUEUE: [_column("ClusterQueue", ".spec.clusterQueue"), pending, admitted],
        names.WORKLOAD: [
            _column("Queue", ".spec.queueName"),
            _column("Reserved in", ".status.admission.clusterQueue"),
            _column("Admitted", _condition("Admitted")),
            _column("Finished", _condition("Finished")),
            age,
        ],
        names.PRIORITY_CLASS: [_column("Value", ".value", "integer")],
    }
    return found.get(kind, [age])


def _older(kind: Kind, schema: Object) -> Object:
    """The schema under the names of the older version."""
    made = copy.deepcopy(schema)
    spec = made["properties"].get("spec", {}).get("properties", {})
    status = made["properties"].get("status", {}).get("properties", {})
    if kind is names.CLUSTER_QUEUE:
        spec["cohort"] = spec.pop("cohortName")
        spec["admissionChecks"] = {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}
        for field, own in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
            choice = spec["flavorFungibility"]["properties"][field]
            choice["enum"] = [own, *choice["enum"]]
            if choice["default"] == names.MAY_STOP:
                choice["default"] = own
        status["pendingWorkloadsStatus"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    elif kind is names.LOCAL_QUEUE:
        status["flavorUsage"] = status.pop("flavorsUsage")
        status["flavors"] = {"type": "array", "items": record({"name": STRING}, "name")}
        status["flavors"]["items"]["x-kubernetes-preserve-unknown-fields"] = True
    elif kind is names.WORKLOAD:
        del spec["priorityClassRef"]
        spec["priorityClassName"] = STRING
        spec["priorityClassSource"] = {"type": "string", "default": ""}
        # Its author's spelling, which clients have to use.
        status["accumulatedPastExexcutionTimeSeconds"] = status.pop("accumulatedPastExecutionTimeSeconds")
    elif kind is names.CHECK:
        spec["retryDelayMinutes"] = {**INT64, "default": 15}
    return made


def _version(kind: Kind, version: str) -> Object:
    schema = _SCHEMAS[kind]()
    if version == names.OLD:
        schema = _older(kind, schema)
    head = {"apiVersion": STRING, "kind": STRING, "metadata": {"type": "object"}}
    whole = {**schema, "description": _SAID[kind], "properties": {**head, **schema["properties"]}}
    made: Object = {
        "name": version,
        "served": True,
        "storage": version == names.STORED,
        "schema": {"openAPIV3Schema": whole},
        "additionalPrinterColumns": _columns(kind, version),
    }
    if "status" in schema["properties"]:
        made["subresources"] = {"status": {}}
    return made


@cache
def definitions() -> list[Object]:
    """The definitions as they are installed. Shared: copy one before changing it."""
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{one.plural}.{names.GROUP}"},
            "spec": {
                "group": names.GROUP,
                "names": {
                    "kind": one.kind,
                    "listKind": f"{one.kind}List",
                    "plural": one.plural,
                    "singular": one.kind.lower(),
                    "shortNames": list(one.short),
                },
                "scope": "Namespaced" if one.namespaced else "Cluster",
                # Clients that ask for no version get the one they know longest.
                "versions": [_version(one, names.OLD), _version(one, names.STORED)],
            },
        }
        for one in names.KINDS
    ]
