"""visibility.kueue.x-k8s.io: the pending workloads of a queue and their positions, computed from the store."""

from __future__ import annotations

import orjson

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.api.resources import Resource, Subresource
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.core.queue.visibility import places

GROUP = "visibility.kueue.x-k8s.io"
PENDING = "pendingworkloads"
_SUMMARY = "PendingWorkloadsSummary"
_DEFAULT_LIMIT = 1000


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
    """The pending workloads in queue order; `offset` and `limit` select a part of them."""
    if ctx.verb != "get":
        raise errors.method_not_allowed()
    lookup = resources.registry.lookup
    resource = ctx.resource
    if lookup.get(names.GROUP, resource.plural, ctx.namespace, ctx.name) is None:
        raise errors.not_found(resource.plural, names.GROUP, ctx.name)
    cluster_queues = {
        (local["metadata"]["namespace"], local["metadata"]["name"]): (local.get("spec") or {}).get("clusterQueue", "")
        for local in lookup.list(names.GROUP, names.LOCAL_QUEUE.plural)
    }
    queue = ctx.name if resource.plural == names.CLUSTER_QUEUE.plural else cluster_queues[ctx.namespace, ctx.name]
    items: list[Object] = []
    counts: dict[tuple[str, str], int] = {}
    for place in places(lookup.list(names.GROUP, names.WORKLOAD.plural), cluster_queues):
        if place.position is None or place.cluster_queue != queue:
            continue
        local_queue = (place.item.key[0], place.item.queue)
        position = counts[local_queue] = counts.get(local_queue, -1) + 1
        if resource.plural == names.LOCAL_QUEUE.plural and local_queue != (ctx.namespace, ctx.name):
            continue
        metadata = place.item.obj["metadata"]
        fields = ("name", "namespace", "creationTimestamp", "ownerReferences")
        items.append(
            {
                "metadata": {key: metadata[key] for key in fields if key in metadata},
                "priority": place.item.priority,
                "localQueueName": place.item.queue,
                "positionInClusterQueue": place.position,
                "positionInLocalQueue": position,
            }
        )
    offset, limit = _number(ctx, "offset", 0), _number(ctx, "limit", _DEFAULT_LIMIT)
    summary = {
        "kind": _SUMMARY,
        "apiVersion": resource.api_version,
        "metadata": {"name": ctx.name},
        "items": items[offset : offset + limit],
    }
    return Response(200, orjson.dumps(summary))


def _number(ctx: RequestContext, name: str, default: int) -> int:
    text = ctx.query.get(name)
    if not text:
        return default
    if not text.isdigit():
        raise errors.bad_request(f"{name} must be a number of workloads, not {text!r}")
    return int(text)
