"""visibility.kueue.x-k8s.io: who waits in a queue and at which place, answered from the store and never kept there."""

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
_MOST = 1000


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


async def pending(resources: ResourceHandler, ctx: RequestContext, _request: Request) -> Response:
    """The workloads that wait, first in line first; `offset` and `limit` choose a part of them."""
    if ctx.verb != "get":
        raise errors.method_not_allowed()
    lookup = resources.registry.lookup
    resource = ctx.resource
    if lookup.get(names.GROUP, resource.plural, ctx.namespace, ctx.name) is None:
        raise errors.not_found(resource.plural, names.GROUP, ctx.name)
    doors = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): (one.get("spec") or {}).get("clusterQueue", "")
        for one in lookup.list(names.GROUP, names.LOCAL_QUEUE.plural)
    }
    queue = ctx.name if resource.plural == names.CLUSTER_QUEUE.plural else doors[ctx.namespace, ctx.name]
    items: list[Object] = []
    counts: dict[tuple[str, str], int] = {}
    for one in places(lookup.list(names.GROUP, names.WORKLOAD.plural), doors):
        if one.position is None or one.cluster_queue != queue:
            continue
        door = (one.item.key[0], one.item.queue)
        place = counts[door] = counts.get(door, -1) + 1
        if resource.plural == names.LOCAL_QUEUE.plural and door != (ctx.namespace, ctx.name):
            continue
        metadata = one.item.obj["metadata"]
        kept = ("name", "namespace", "creationTimestamp", "ownerReferences")
        items.append(
            {
                "metadata": {key: metadata[key] for key in kept if key in metadata},
                "priority": one.item.priority,
                "localQueueName": one.item.queue,
                "positionInClusterQueue": one.position,
                "positionInLocalQueue": place,
            }
        )
    offset, limit = _number(ctx, "offset", 0), _number(ctx, "limit", _MOST)
    summary = {
        "kind": _SUMMARY,
        "apiVersion": resource.api_version,
        "metadata": {"name": ctx.name},
        "items": items[offset : offset + limit],
    }
    return Response(200, orjson.dumps(summary))


def _number(ctx: RequestContext, name: str, default: int) -> int:
    said = ctx.query.get(name)
    if not said:
        return default
    if not said.isdigit():
        raise errors.bad_request(f"{name} must be a number of workloads, not {said!r}")
    return int(said)
