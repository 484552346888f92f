"""metrics.k8s.io: the resource usage of pods and nodes, measured by the plane's node."""

from __future__ import annotations

import orjson

from torchyard.api import errors, selectors
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
RESOURCES = (
    Resource(GROUP, VERSION, "nodes", "", "NodeMetrics", namespaced=False, verbs=("get", "list")),
    Resource(GROUP, VERSION, "pods", "", "PodMetrics", namespaced=True, verbs=("get", "list")),
)


async def handle(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    usage = resources.registry.usage
    if usage is None:
        raise errors.unavailable("the metrics API needs a node: start the plane with `yard up --node`")
    if ctx.verb not in ("get", "list"):
        raise errors.method_not_allowed()
    resource = ctx.resource
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    items = [metrics for metrics in usage.usage_metrics(resource.plural) if _is_selected(metrics, ctx)]
    if ctx.name:
        if not items:
            raise errors.not_found(resource.plural, GROUP, ctx.name)
        return Response(200, orjson.dumps({**head, **items[0]}))
    listing = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": {}, "items": items}
    return Response(200, orjson.dumps(listing))


def _is_selected(metrics: Object, ctx: RequestContext) -> bool:
    metadata = metrics["metadata"]
    if ctx.namespace and metadata.get("namespace") != ctx.namespace:
        return False
    if ctx.name and metadata["name"] != ctx.name:
        return False
    return selectors.parse_labels(ctx.query.get("labelSelector")).matches(metadata.get("labels") or {})
