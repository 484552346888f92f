"""`nodes/proxy`: what a kubelet answers about itself. The plane's node has no port of its own: this module answers."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from torchyard.api import errors
from torchyard.api.objects import Object
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.proxy.url_rewriter import escape_path
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import JSON, TEXT, ProxiedHead, Response
from torchyard.apiserver.subresources.refused import refuse

# Before the path that the kubelet gets: /api/v1/nodes/NAME/proxy
_PREFIX_SEGMENTS = 6
_SCHEMES = ("", "http", "https")


async def proxy_node(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    registry = resources.registry
    name = _node_name(ctx.name)
    if registry.lookup.get("", "nodes", "", name) is None:
        raise errors.not_found("nodes", "", name)
    if registry.streams is None:  # another kubelet's node
        return await refuse(resources, ctx, request)
    options = {"kind": ctx.resource.subresources["proxy"].gvk.kind, "apiVersion": "v1"}
    await registry.admission.review(registry, ctx, "CONNECT", options)
    segments = request.path.split("/")[_PREFIX_SEGMENTS:]
    if not segments:
        query = f"?{request.query.text}" if request.query.text else ""
        path = escape_path(request.path.encode("utf-8", "surrogateescape"))
        headers = [("Cache-Control", "no-cache, private"), ("Location", f"{path}/{query}")]
        return Response(301, is_raw=True, proxied=ProxiedHead(headers))
    answer = _ANSWERS.get("/".join(segments).rstrip("/"))
    if answer is None:
        raise errors.PageNotFound
    if request.method not in ("GET", "HEAD"):
        return Response(405, b"405: Method Not Allowed", TEXT, is_raw=True)
    return answer(registry, name)


def _node_name(identifier: str) -> str:
    """The name in `[scheme:]name[:port]`."""
    parts = identifier.split(":")
    if len(parts) == 3 and parts[0] in _SCHEMES:
        return parts[1]
    if len(parts) > 2 or not parts[0]:
        raise errors.bad_request(f'invalid node request "{identifier}"')
    return parts[0]


def _health(_registry: Registry, _node: str) -> Response:
    return Response(200, b"ok", TEXT, is_raw=True)


def _pods(registry: Registry, node: str) -> Response:
    """The pods of the node, as a kubelet lists them."""
    items: list[Object] = [pod for pod in registry.lookup.list("", "pods") if pod["spec"].get("nodeName") == node]
    body = orjson.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
    return Response(200, body, JSON, is_raw=True)


_ANSWERS: dict[str, Callable[[Registry, str], Response]] = {"healthz": _health, "pods": _pods}
