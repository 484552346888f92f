"""Table columns of workloads, autoscalers and disruption budgets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from torchyard.api.columns import Cell, Column, Columns
from torchyard.api.objects import Object
from torchyard.api.table_cells import (
    AGE,
    CONTAINERS,
    NAME,
    NONE,
    SELECTOR,
    age_of,
    container_names_and_images,
    format_labels,
    format_selector,
    name_of,
)
from torchyard.api.workload.autoscaler_v1 import from_v1


def _template(obj: Object) -> Object:
    spec: Object = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    return spec


def _number(obj: Object, part: str, field: str) -> int:
    value: int = (obj.get(part) or {}).get(field) or 0
    return value


def _replica_cells(selector: Callable[[Object], str]) -> Callable[[Object, datetime], list[Cell]]:
    def cells(obj: Object, now: datetime) -> list[Cell]:
        return [
            name_of(obj),
            _number(obj, "spec", "replicas"),
            _number(obj, "status", "replicas"),
            _number(obj, "status", "readyReplicas"),
            age_of(obj, now),
            *container_names_and_images(_template(obj)),
            selector((obj.get("spec") or {}).get("selector") or {}),
        ]

    return cells


_REPLICA_COLUMNS = (
    NAME,
    Column("Desired", "integer", description="The desired number of pods."),
    Column("Current", "integer", description="The current number of pods."),
    Column("Ready", "integer", description="The number of ready pods."),
    AGE,
    *CONTAINERS,
    SELECTOR,
)
REPLICA_SETS = Columns(_REPLICA_COLUMNS, _replica_cells(format_selector))
REPLICATION_CONTROLLERS = Columns(_REPLICA_COLUMNS, _replica_cells(format_labels))


def _deployment_cells(obj: Object, now: datetime) -> list[Cell]:
    return [
        name_of(obj),
        f"{_number(obj, 'status', 'readyReplicas')}/{_number(obj, 'spec', 'replicas')}",
        _number(obj, "status", "updatedReplicas"),
        _number(obj, "status", "availableReplicas"),
        age_of(obj, now),
        *container_names_and_images(_template(obj)),
        format_selector((obj.get("spec") or {}).get("selector")),
    ]


DEPLOYMENTS = Columns(
    (
        NAME,
        Column("Ready", description="The number of ready pods and of desired pods."),
        Column("Up-to-date", description="The number of pods of the current template."),
        Column("Available", description="The number of available pods."),
        AGE,
        *CONTAINERS,
        SELECTOR,
    ),
    _deployment_cells,
)


def _stateful_set_cells(obj: Object, now: datetime) -> list[Cell]:
    ready = f"{_number(obj, 'status', 'readyReplicas')}/{_number(obj, 'spec', 'replicas')}"
    return [name_of(obj), ready, age_of(obj, now), *container_names_and_images(_template(obj))]


STATEFUL_SETS = Columns(
    (NAME, Column("Ready", description="The number of ready pods and of desired pods."), AGE, *CONTAINERS),
    _stateful_set_cells,
)

_DAEMON_FIELDS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


def _daemon_set_cells(obj: Object, now: datetime) -> list[Cell]:
    return [
        name_of(obj),
        *(_number(obj, "status", field) for field in _DAEMON_FIELDS),
        format_labels(_template(obj).get("nodeSelector")),
        age_of(obj, now),
        *container_names_and_images(_template(obj)),
        format_selector((obj.get("spec") or {}).get("selector")),
    ]


DAEMON_SETS = Columns(
    (
        NAME,
        Column("Desired", "integer", description="The number of nodes that should run the pod."),
        Column("Current", "integer", description="The number of nodes that run the pod."),
        Column("Ready", "integer", description="The number of nodes with a ready pod."),
        Column("Up-to-date", "integer", description="The number of nodes with a pod of the current template."),
        Column("Available", "integer", description="The number of nodes with an available pod."),
        Column("Node Selector", description="The labels that select the nodes."),
        AGE,
        *CONTAINERS,
        SELECTOR,
    ),
    _daemon_set_cells,
)


def _controller_revision_cells(obj: Object, now: datetime) -> list[Cell]:
    owner = next(
        (reference for reference in obj["metadata"].get("ownerReferences") or () if reference.get("controller")), None
    )
    controller = NONE
    if owner is not None:
        group, _, _ = owner["apiVersion"].rpartition("/")
        kind = owner["kind"].lower()
        controller = f"{kind}.{group}/{owner['name']}" if group else f"{kind}/{owner['name']}"
    return [name_of(obj), controller, obj.get("revision") or 0, age_of(obj, now)]


CONTROLLER_REVISIONS = Columns(
    (
        NAME,
        Column("Controller", description="The owner of the revision."),
        Column("Revision", description="The revision number; the highest is the newest."),
        AGE,
    ),
    _controller_revision_cells,
)


def _disruption_budget_cells(obj: Object, now: datetime) -> list[Cell]:
    spec = obj.get("spec") or {}
    limits = [str(spec[field]) if field in spec else "N/A" for field in ("minAvailable", "maxUnavailable")]
    return [name_of(obj), *limits, _number(obj, "status", "disruptionsAllowed"), age_of(obj, now)]


DISRUPTION_BUDGETS = Columns(
    (
        NAME,
        Column("Min Available", description="The number of pods that must stay available."),
        Column("Max Unavailable", description="The number of pods that may be unavailable."),
        Column("Allowed Disruptions", "integer", description="The number of pods that can be evicted now."),
        AGE,
    ),
    _disruption_budget_cells,
)


def _autoscaler_cells(obj: Object, now: datetime) -> list[Cell]:
    if obj.get("apiVersion") == "autoscaling/v1":
        obj = _to_v2(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    minimum = spec.get("minReplicas")
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(spec.get("metrics") or [], status.get("currentMetrics") or []),
        "<unset>" if minimum is None else str(minimum),
        spec.get("maxReplicas") or 0,
        status.get("currentReplicas") or 0,
        age_of(obj, now),
    ]


def _to_v2(obj: Object) -> Object:
    """Return the autoscaler as v2. v1 has cpu utilization as a separate field; it becomes the first metric."""
    converted = from_v1(obj)
    if "targetCPUUtilizationPercentage" in (obj.get("spec") or {}):
        *others, cpu = converted["spec"]["metrics"]
        converted["spec"]["metrics"] = [cpu, *others]
    return converted


# The number of metrics in a cell.
_SHOWN_METRICS = 2
_METRIC_FIELDS = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


def _metrics(specs: list[Object], statuses: list[Object]) -> str:
    if not specs:
        return NONE
    listed = [
        _metric(spec, statuses[index] if index < len(statuses) else {})
        for index, spec in enumerate(specs[:_SHOWN_METRICS])
    ]
    text = ", ".join(listed)
    return f"{text} + {len(specs) - _SHOWN_METRICS} more..." if len(specs) > _SHOWN_METRICS else text


def _metric(spec: Object, status: Object) -> str:
    """Format `current/target`, as far as they are known."""
    kind = spec.get("type", "")
    field = _METRIC_FIELDS.get(kind)
    if field is None:
        return "<unknown type>"
    target = (spec.get(field) or {}).get("target") or {}
    current = (status.get(field) or {}).get("current") or {} if status.get("type") == kind else {}
    name = (spec.get(field) or {}).get("name")
    prefix = f"{name}: " if kind in ("Resource", "ContainerResource") else ""
    if kind in ("Resource", "ContainerResource") and target.get("averageUtilization") is not None:
        used = current.get("averageUtilization")
        return f"{prefix}{'<unknown>' if used is None else f'{used}%'}/{target['averageUtilization']}%"
    if kind in ("Resource", "ContainerResource", "Pods") or target.get("averageValue") is not None:
        average = current.get("averageValue") or "<unknown>"
        suffix = " (avg)" if kind in ("Object", "External") else ""
        return f"{prefix}{average}/{target.get('averageValue', '<auto>')}{suffix}"
    return f"{current.get('value') or '<unknown>'}/{target.get('value', '<auto>')}"


AUTOSCALERS = Columns(
    (
        NAME,
        Column("Reference", description="The object that is scaled."),
        Column("Targets", description="The current and target value of each metric."),
        Column("MinPods", description="The minimum number of replicas."),
        Column("MaxPods", description="The maximum number of replicas."),
        Column("Replicas", description="The current number of replicas."),
        AGE,
    ),
    _autoscaler_cells,
)
