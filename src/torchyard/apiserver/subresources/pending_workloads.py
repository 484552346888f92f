"""visibility.kueue.x-k8s.io: the pending workloads of a queue with their positions, computed from the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.queue import advice_messages, names
from torchyard.api.resources import Resource, Subresource
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.registry.lookup import StoreLookup
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response

if TYPE_CHECKING:
    from torchyard.core.queue.visibility import WorkloadPosition
    from torchyard.core.queue.workload_info import WorkloadInfo

GROUP = "visibility.kueue.x-k8s.io"
PENDING = "pendingworkloads"
_SUMMARY = "PendingWorkloadsSummary"
_DEFAULT_LIMIT = 1000
_WITHOUT_PAUSE = 50  # workloads to look at before other requests are answered
_METADATA_FIELDS = ("name", "namespace", "creationTimestamp", "ownerReferences")


def _resource(version: str, kind: names.Kind) -> Resource:
    summary = Subresource(PENDING, GroupVersionKind(GROUP, version, _SUMMARY), ("get",))
    return Resource(
        GROUP, version, kind.plural, kind.kind.lower(), kind.kind, kind.namespaced, (), subresources={PENDING: summary}
    )


RESOURCES = tuple(
    _resource(version, kind)
    for version in (names.OLD, names.STORED)
    for kind in (names.CLUSTER_QUEUE, names.LOCAL_QUEUE)
)


async def pending_workloads(resources: ResourceHandler, ctx: RequestContext, _request: Request) -> Response:
    """The pending workloads in queue order. The parameters `offset` and `limit` select a part of them."""
    from torchyard.core.queue.visibility import positions_of_infos

    if ctx.verb != "get":
        raise errors.method_not_allowed()
    lookup = resources.registry.lookup
    resource = ctx.resource
    if lookup.get(names.GROUP, resource.plural, ctx.namespace, ctx.name) is None:
        raise errors.not_found(resource.plural, names.GROUP, ctx.name)
    local_queues = list(lookup.list(names.GROUP, names.LOCAL_QUEUE.plural))
    cluster_queue_of = {
        (obj["metadata"]["namespace"], obj["metadata"]["name"]): (obj.get("spec") or {}).get("clusterQueue", "")
        for obj in local_queues
    }
    is_local = resource.plural == names.LOCAL_QUEUE.plural
    cluster_queue = cluster_queue_of[ctx.namespace, ctx.name] if is_local else ctx.name
    items: list[tuple[Object, WorkloadPosition]] = []
    counts: dict[tuple[str, str], int] = {}
    positions = positions_of_infos(await _read_workloads(lookup), cluster_queue_of)
    for workload in positions:
        if workload.position is None or workload.cluster_queue != cluster_queue:
            continue
        info = workload.info
        local_position = counts[info.local_queue] = counts.get(info.local_queue, -1) + 1
        if is_local and info.local_queue != (ctx.namespace, ctx.name):
            continue
        metadata = info.obj["metadata"]
        item = {
            "metadata": {field: metadata[field] for field in _METADATA_FIELDS if field in metadata},
            "priority": info.priority,
            "localQueueName": info.queue_name,
            "positionInClusterQueue": workload.position,
            "positionInLocalQueue": local_position,
        }
        items.append((item, workload))
    offset, limit = _count_parameter(ctx, "offset", 0), _count_parameter(ctx, "limit", _DEFAULT_LIMIT)
    page = items[offset : offset + limit]
    await _add_reasons(page, positions, local_queues, lookup)
    summary = {
        "kind": _SUMMARY,
        "apiVersion": resource.api_version,
        "metadata": {"name": ctx.name},
        "items": [item for item, _ in page],
    }
    return Response(200, orjson.dumps(summary))


async def _read_workloads(lookup: StoreLookup) -> list[WorkloadInfo]:
    """All workloads, parsed. Other requests are answered meanwhile."""
    from torchyard.core.queue.pod_defaults import NamespaceDefaults
    from torchyard.core.queue.visibility import parse_workloads

    defaults = NamespaceDefaults(lookup.list("", "limitranges"), lookup.list("node.k8s.io", "runtimeclasses"))
    objects = (record.object() for record in list(lookup.records(names.GROUP, names.WORKLOAD.plural)))
    infos: list[WorkloadInfo] = []
    for info in parse_workloads(objects, defaults):
        infos.append(info)
        if len(infos) % _WITHOUT_PAUSE == 0:
            await asyncio.sleep(0)
    return infos


async def _add_reasons(
    page: list[tuple[Object, WorkloadPosition]],
    positions: list[WorkloadPosition],
    local_queues: list[Object],
    lookup: StoreLookup,
) -> None:
    """Say of each item why it is pending. Other requests are answered meanwhile."""
    from torchyard.core.queue.explanation import PendingExplainer

    def labels_of(namespace: str) -> dict[str, str] | None:
        obj = lookup.get("", "namespaces", "", namespace)
        return None if obj is None else obj["metadata"].get("labels") or {}

    explainer = PendingExplainer(
        positions,
        flavors=lookup.list(names.GROUP, names.FLAVOR.plural),
        cluster_queues=lookup.list(names.GROUP, names.CLUSTER_QUEUE.plural),
        cohorts=lookup.list(names.GROUP, names.COHORT.plural),
        local_queues=local_queues,
        checks=lookup.list(names.GROUP, names.CHECK.plural),
        labels_of=labels_of,
    )
    for number, (item, workload) in enumerate(page):
        if number % _WITHOUT_PAUSE == 0:
            await asyncio.sleep(0)
        summary = explainer.summarize(workload)
        if summary is not None:
            item["pendingReason"] = str(summary)  # not in Kueue's API; its clients ignore it


def _count_parameter(ctx: RequestContext, name: str, default: int) -> int:
    value = ctx.query.get(name)
    if not value:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise errors.bad_request(advice_messages.invalid_count_parameter(name, value))
    return int(value)
