"""The CustomResourceDefinitions of the queue kinds in both versions, with Kueue's names and columns."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

from torchyard.api.objects import Object
from torchyard.api.queue import names, schemas
from torchyard.api.queue.conversion import PRIORITY_CLASS_SOURCES
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
_DESCRIPTIONS = {
    names.FLAVOR: "The kind of nodes that a quota is for.",
    names.CLUSTER_QUEUE: "A pool of quota that workloads are admitted to.",
    names.LOCAL_QUEUE: "A namespace's access to a ClusterQueue.",
    names.WORKLOAD: "The pods of one job, which are admitted together.",
    names.PRIORITY_CLASS: "A priority in queues, independent of that of pods.",
    names.COHORT: "ClusterQueues that lend each other unused quota.",
    names.CHECK: "An external condition for the admission of workloads.",
}


def _condition(type: str) -> str:
    return f".status.conditions[?(@.type=='{type}')].status"


def _column(name: str, path: str, type: str = "string", *, wide: bool = False) -> Object:
    column: Object = {"name": name, "type": type, "jsonPath": path}
    return {**column, "priority": 1} if wide else column


def _columns(kind: Kind, version: str) -> list[Object]:
    cohort = ".spec.cohort" if version == names.OLD else ".spec.cohortName"
    pending = _column("Pending Workloads", ".status.pendingWorkloads", "integer")
    admitted = _column("Admitted Workloads", ".status.admittedWorkloads", "integer")
    age = _column("Age", ".metadata.creationTimestamp", "date")
    columns = {
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
    return columns.get(kind, [age])


def _old_schema(kind: Kind, schema: Object) -> Object:
    """The schema with the field names of v1beta1."""
    old = copy.deepcopy(schema)
    spec = old["properties"].get("spec", {}).get("properties", {})
    status = old["properties"].get("status", {}).get("properties", {})
    if kind is names.CLUSTER_QUEUE:
        spec["cohort"] = spec.pop("cohortName")
        spec["admissionChecks"] = {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}
        for field, old_value in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
            choice = spec["flavorFungibility"]["properties"][field]
            choice["enum"] = [old_value, *choice["enum"]]
            if choice["default"] == names.MAY_STOP:
                choice["default"] = old_value
        status["pendingWorkloadsStatus"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    elif kind is names.LOCAL_QUEUE:
        status["flavorUsage"] = status.pop("flavorsUsage")
        status["flavors"] = {"type": "array", "items": record({"name": STRING}, "name")}
        status["flavors"]["items"]["x-kubernetes-preserve-unknown-fields"] = True
    elif kind is names.WORKLOAD:
        del spec["priorityClassRef"]
        old["properties"]["spec"]["required"] = ["podSets"]
        spec["priorityClassName"] = schemas.NAME
        spec["priorityClassSource"] = {"type": "string", "default": "", "enum": [*PRIORITY_CLASS_SOURCES, ""]}
        status["admission"]["required"] = ["clusterQueue", "podSetAssignments"]
        # Kueue's spelling, which clients have to use.
        status["accumulatedPastExexcutionTimeSeconds"] = status.pop("accumulatedPastExecutionTimeSeconds")
    elif kind is names.CHECK:
        spec["retryDelayMinutes"] = {**INT64, "default": 15}
    return old


def _version(kind: Kind, version: str) -> Object:
    schema = _SCHEMAS[kind]()
    if version == names.OLD:
        schema = _old_schema(kind, schema)
    type_meta = {"apiVersion": STRING, "kind": STRING, "metadata": {"type": "object"}}
    with_type_meta = {**schema, "description": _DESCRIPTIONS[kind], "properties": {**type_meta, **schema["properties"]}}
    definition: Object = {
        "name": version,
        "served": True,
        "storage": version == names.STORED,
        "schema": {"openAPIV3Schema": with_type_meta},
        "additionalPrinterColumns": _columns(kind, version),
    }
    if "status" in schema["properties"]:
        definition["subresources"] = {"status": {}}
    return definition


@cache
def definitions() -> list[Object]:
    """The definitions as they are installed. They are shared: copy one before you change it."""
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind.plural}.{names.GROUP}"},
            "spec": {
                "group": names.GROUP,
                "names": {
                    "kind": kind.kind,
                    "listKind": f"{kind.kind}List",
                    "plural": kind.plural,
                    "singular": kind.kind.lower(),
                    "shortNames": list(kind.short),
                },
                "scope": "Namespaced" if kind.namespaced else "Cluster",
                # Clients that name no version get the oldest, as with Kueue.
                "versions": [_version(kind, names.OLD), _version(kind, names.STORED)],
            },
        }
        for kind in names.KINDS
    ]
