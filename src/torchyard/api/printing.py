"""Table responses for `kubectl get`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from torchyard.api.access import columns as access
from torchyard.api.cluster import columns as cluster
from torchyard.api.columns import Cell, Columns
from torchyard.api.device import columns as device
from torchyard.api.errors import bad_request
from torchyard.api.field_errors import format_value
from torchyard.api.job import columns as job
from torchyard.api.objects import Object
from torchyard.api.pod import columns as pod
from torchyard.api.service import columns as service
from torchyard.api.table_cells import CREATED_AT, NAME, name_of
from torchyard.api.volume import columns as volume
from torchyard.api.workload import columns as workload

IncludeObject = Literal["Metadata", "Object", "None"]


def _generic_cells(obj: Object, now: datetime) -> list[Cell]:
    return [name_of(obj), obj["metadata"].get("creationTimestamp")]


# Also what kube-apiserver returns for built-in kinds without a printer.
GENERIC = Columns((NAME, CREATED_AT), _generic_cells)

COLUMNS: dict[tuple[str, str], Columns] = {
    ("", "componentstatuses"): cluster.COMPONENT_STATUSES,
    ("", "configmaps"): cluster.CONFIG_MAPS,
    ("", "endpoints"): service.ENDPOINTS,
    ("", "events"): cluster.EVENTS,
    ("", "namespaces"): cluster.NAMESPACES,
    ("", "nodes"): cluster.NODES,
    ("", "persistentvolumeclaims"): volume.CLAIMS,
    ("", "persistentvolumes"): volume.VOLUMES,
    ("", "pods"): pod.PODS,
    ("", "podtemplates"): pod.POD_TEMPLATES,
    ("", "replicationcontrollers"): workload.REPLICATION_CONTROLLERS,
    ("", "resourcequotas"): cluster.RESOURCE_QUOTAS,
    ("", "secrets"): cluster.SECRETS,
    ("", "serviceaccounts"): cluster.SERVICE_ACCOUNTS,
    ("", "services"): service.SERVICES,
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): access.WEBHOOKS,
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): access.ADMISSION_POLICIES,
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): access.ADMISSION_POLICY_BINDINGS,
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): access.WEBHOOKS,
    ("apiregistration.k8s.io", "apiservices"): access.API_SERVICES,
    ("apps", "controllerrevisions"): workload.CONTROLLER_REVISIONS,
    ("apps", "daemonsets"): workload.DAEMON_SETS,
    ("apps", "deployments"): workload.DEPLOYMENTS,
    ("apps", "replicasets"): workload.REPLICA_SETS,
    ("apps", "statefulsets"): workload.STATEFUL_SETS,
    ("autoscaling", "horizontalpodautoscalers"): workload.AUTOSCALERS,
    ("batch", "cronjobs"): job.CRON_JOBS,
    ("batch", "jobs"): job.JOBS,
    ("certificates.k8s.io", "certificatesigningrequests"): access.SIGNING_REQUESTS,
    ("coordination.k8s.io", "leases"): cluster.LEASES,
    ("discovery.k8s.io", "endpointslices"): service.ENDPOINT_SLICES,
    ("events.k8s.io", "events"): cluster.NEW_EVENTS,
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): access.FLOW_SCHEMAS,
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): access.PRIORITY_LEVELS,
    ("networking.k8s.io", "ingressclasses"): service.INGRESS_CLASSES,
    ("networking.k8s.io", "ingresses"): service.INGRESSES,
    ("networking.k8s.io", "ipaddresses"): service.IP_ADDRESSES,
    ("networking.k8s.io", "networkpolicies"): service.NETWORK_POLICIES,
    ("networking.k8s.io", "servicecidrs"): service.SERVICE_CIDRS,
    ("node.k8s.io", "runtimeclasses"): cluster.RUNTIME_CLASSES,
    ("policy", "poddisruptionbudgets"): workload.DISRUPTION_BUDGETS,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): access.BINDINGS,
    ("rbac.authorization.k8s.io", "rolebindings"): access.BINDINGS,
    ("resource.k8s.io", "deviceclasses"): device.PLAIN,
    ("resource.k8s.io", "resourceclaims"): device.RESOURCE_CLAIMS,
    ("resource.k8s.io", "resourceclaimtemplates"): device.PLAIN,
    ("resource.k8s.io", "resourceslices"): device.RESOURCE_SLICES,
    ("scheduling.k8s.io", "priorityclasses"): cluster.PRIORITY_CLASSES,
    ("storage.k8s.io", "csidrivers"): volume.CSI_DRIVERS,
    ("storage.k8s.io", "csinodes"): volume.CSI_NODES,
    ("storage.k8s.io", "storageclasses"): volume.STORAGE_CLASSES,
    ("storage.k8s.io", "volumeattachments"): volume.ATTACHMENTS,
    ("storage.k8s.io", "volumeattributesclasses"): volume.ATTRIBUTES_CLASSES,
}


def columns_of(group: str, plural: str) -> Columns:
    """Return the columns of a built-in resource."""
    return COLUMNS.get((group, plural), GENERIC)


def include_object(text: str) -> IncludeObject:
    """Parse the `includeObject` parameter. Raises 400 for an unknown value."""
    match text:
        case "" | "Metadata":
            return "Metadata"
        case "Object" | "None":
            return text
    raise bad_request(
        "Unable to convert to Table as requested: includeObject:"
        f" Invalid value: {format_value(text)}: must be 'Metadata', 'Object', 'None', or empty"
    )


def table(
    columns: Columns,
    objects: Iterable[Object],
    now: datetime,
    *,
    metadata: Object | None = None,
    include: IncludeObject = "Metadata",
    version: str = "v1",
    definitions: bool = True,
) -> Object:
    """Return a Table of these objects, in `meta.k8s.io/<version>`.

    `metadata` is the metadata of the list, or the resourceVersion of a single object. In a watch only the first Table
    needs `definitions`. With `include="Object"` the objects must have kind and apiVersion.
    """
    api_version = f"meta.k8s.io/{version}"
    cells, conditions = columns.cells, columns.conditions
    shown = columns.columns
    if columns.optional is not None:
        objects = list(objects)
        if any(columns.optional_cell(obj) for obj in objects):
            shown = (*shown, columns.optional)
    rows: list[Object] = []
    for obj in objects:
        row: Object = {"cells": cells(obj, now)}
        if len(shown) > len(columns.columns):
            row["cells"].append(columns.optional_cell(obj))
        if conditions is not None and (row_conditions := conditions(obj)):
            row["conditions"] = row_conditions
        if include == "Metadata":
            row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": obj["metadata"]}
        else:
            row["object"] = obj if include == "Object" else None
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata or {},
        "columnDefinitions": [column.definition() for column in shown] if definitions else None,
        "rows": rows,
    }
