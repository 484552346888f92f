"""Table columns of nodes, namespaces, events and the small core kinds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from torchyard.api.columns import Cell, Column, Columns
from torchyard.api.objects import Object
from torchyard.api.table_cells import AGE, NAME, NONE, UNKNOWN, age, age_of, condition_status, name_of

Cells = Callable[[Object, datetime], list[Cell]]

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def _node_cells(node: Object, now: datetime) -> list[Cell]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    info = status.get("nodeInfo") or {}
    addresses = status.get("addresses") or ()
    return [
        name_of(node),
        _node_status(spec, status),
        ",".join(_roles(node["metadata"].get("labels") or {})) or NONE,
        age_of(node, now),
        info.get("kubeletVersion") or "",
        *(
            next((address["address"] for address in addresses if address.get("type") == kind), NONE)
            for kind in ("InternalIP", "ExternalIP")
        ),
        *(info.get(field) or UNKNOWN for field in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _node_status(spec: Object, status: Object) -> str:
    ready = condition_status(status.get("conditions"), "Ready")
    word = {"": "Unknown", "True": "Ready"}.get(ready, "NotReady")
    return f"{word},SchedulingDisabled" if spec.get("unschedulable") else word


def _roles(labels: dict[str, str]) -> list[str]:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return sorted((roles | {labels.get(_ROLE_LABEL, "")}) - {""})


NODES = Columns(
    (
        NAME,
        Column("Status", description="Whether the node is ready and accepts pods."),
        Column("Roles", description="The roles of the node."),
        AGE,
        Column("Version", description="The version of the node agent."),
        Column("Internal-IP", description="The internal address of the node.", priority=1),
        Column("External-IP", description="The external address of the node.", priority=1),
        Column("OS-Image", description="The operating system of the node.", priority=1),
        Column("Kernel-Version", description="The kernel version of the node.", priority=1),
        Column("Container-Runtime", description="The container runtime of the node.", priority=1),
    ),
    _node_cells,
)


def _core_event_cells(event: Object, now: datetime) -> list[Cell]:
    source = event.get("source") or {}
    return _event_cells(
        event,
        now,
        first=event.get("firstTimestamp"),
        last=event.get("lastTimestamp"),
        count=event.get("count"),
        involved=event.get("involvedObject") or {},
        source=(source.get("component"), source.get("host")),
        message=event.get("message"),
    )


def _new_event_cells(event: Object, now: datetime) -> list[Cell]:
    source = event.get("deprecatedSource") or {}
    return _event_cells(
        event,
        now,
        first=event.get("deprecatedFirstTimestamp"),
        last=event.get("deprecatedLastTimestamp"),
        count=event.get("deprecatedCount"),
        involved=event.get("regarding") or {},
        source=(source.get("component"), source.get("host")),
        message=event.get("note"),
    )


def _event_cells(
    event: Object,
    now: datetime,
    *,
    first: str | None,
    last: str | None,
    count: int | None,
    involved: Object,
    source: tuple[str | None, str | None],
    message: str | None,
) -> list[Cell]:
    series = event.get("series")
    first_seen = age(first or event.get("eventTime"), now)
    last_seen = age(last, now) if last else first_seen
    if series:
        last_seen, count = age(series.get("lastObservedTime"), now), series.get("count") or 0
    kind, name = (involved.get("kind") or "").lower(), involved.get("name")
    component = source[0] or event.get("reportingComponent") or event.get("reportingController") or ""
    instance = source[1] or event.get("reportingInstance")
    return [
        last_seen,
        event.get("type") or "",
        event.get("reason") or "",
        f"{kind}/{name}" if name else kind,
        involved.get("fieldPath") or "",
        f"{component}, {instance}" if instance else component,
        (message or "").strip(),
        first_seen,
        count if series else count or 1,
        name_of(event),
    ]


_EVENT_COLUMNS = (
    Column("Last Seen", description="The time since the event last occurred."),
    Column("Type", description="Normal or Warning."),
    Column("Reason", description="The reason of the event, in one word."),
    Column("Object", description="The object that the event is about."),
    Column("Subobject", description="The part of the object that the event is about.", priority=1),
    Column("Source", description="The component that reported the event.", priority=1),
    Column("Message", description="The message of the event."),
    Column("First Seen", description="The time since the event first occurred.", priority=1),
    Column("Count", description="How often the event occurred.", priority=1),
    Column("Name", format="name", description="The name of the event.", priority=1),
)
EVENTS = Columns(_EVENT_COLUMNS, _core_event_cells)
NEW_EVENTS = Columns(_EVENT_COLUMNS, _new_event_cells)


def _namespace_cells(namespace: Object, now: datetime) -> list[Cell]:
    return [name_of(namespace), (namespace.get("status") or {}).get("phase") or "", age_of(namespace, now)]


NAMESPACES = Columns((NAME, Column("Status", description="Active or Terminating."), AGE), _namespace_cells)


def _config_map_cells(config_map: Object, now: datetime) -> list[Cell]:
    return [
        name_of(config_map),
        len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ()),
        age_of(config_map, now),
    ]


CONFIG_MAPS = Columns((NAME, Column("Data", description="The number of entries."), AGE), _config_map_cells)


def _secret_cells(secret: Object, now: datetime) -> list[Cell]:
    return [name_of(secret), secret.get("type") or "", len(secret.get("data") or ()), age_of(secret, now)]


SECRETS = Columns(
    (
        NAME,
        Column("Type", description="The type of the secret."),
        Column("Data", description="The number of entries."),
        AGE,
    ),
    _secret_cells,
)


def _account_cells(account: Object, now: datetime) -> list[Cell]:
    return [name_of(account), len(account.get("secrets") or ()), age_of(account, now)]


SERVICE_ACCOUNTS = Columns(
    (NAME, Column("Secrets", description="The number of secrets that the account lists."), AGE), _account_cells
)


def _quota_cells(quota: Object, now: datetime) -> list[Cell]:
    status = quota.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    requests: list[str] = []
    limits: list[str] = []
    for resource in sorted(hard):
        pair = f"{resource}: {used.get(resource, 0)}/{hard[resource]}"
        (limits if resource.startswith("limits") else requests).append(pair)
    return [name_of(quota), ", ".join(requests), ", ".join(limits), age_of(quota, now)]


RESOURCE_QUOTAS = Columns(
    (
        NAME,
        Column("Request", description="Usage and hard limit of requests and object counts."),
        Column("Limit", description="Usage and hard limit of limits."),
        AGE,
    ),
    _quota_cells,
)


def _lease_cells(lease: Object, now: datetime) -> list[Cell]:
    return [name_of(lease), (lease.get("spec") or {}).get("holderIdentity") or "", age_of(lease, now)]


LEASES = Columns((NAME, Column("Holder", description="The holder of the lease."), AGE), _lease_cells)


def _priority_class_cells(priority_class: Object, now: datetime) -> list[Cell]:
    return [
        name_of(priority_class),
        priority_class.get("value") or 0,
        bool(priority_class.get("globalDefault")),
        age_of(priority_class, now),
        priority_class.get("preemptionPolicy") or "",
    ]


PRIORITY_CLASSES = Columns(
    (
        NAME,
        Column("Value", "integer", description="The priority of the pods; higher values are scheduled first."),
        Column("Global-Default", "boolean", description="Whether the class applies to pods without a class."),
        AGE,
        Column("PreemptionPolicy", description="Whether the pods may preempt others."),
    ),
    _priority_class_cells,
)


def _runtime_class_cells(runtime_class: Object, now: datetime) -> list[Cell]:
    return [name_of(runtime_class), runtime_class.get("handler") or "", age_of(runtime_class, now)]


RUNTIME_CLASSES = Columns(
    (NAME, Column("Handler", description="The handler of the container runtime."), AGE), _runtime_class_cells
)


def _component_status_cells(component_status: Object, now: datetime) -> list[Cell]:
    conditions = component_status.get("conditions") or ()
    healthy: Object = next((condition for condition in conditions if condition.get("type") == "Healthy"), {})
    word = {"True": "Healthy", "False": "Unhealthy"}.get(healthy.get("status", ""), "Unknown")
    return [name_of(component_status), word, healthy.get("message") or "", healthy.get("error") or ""]


COMPONENT_STATUSES = Columns(
    (
        NAME,
        Column("Status", description="Whether the component is healthy."),
        Column("Message", description="The message of the health check."),
        Column("Error", description="The error of the health check."),
    ),
    _component_status_cells,
)
