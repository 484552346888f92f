"""`pods/proxy` and `services/proxy`: requests of any method that a pod answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from torchyard.api import errors
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.proxy.client_request import client_headers, is_upgrade, load_client, received_request
from torchyard.apiserver.proxy.location import ProxyTarget, pod_target, service_target
from torchyard.apiserver.proxy.page_sandbox import sandbox_page
from torchyard.apiserver.proxy.url_rewriter import escape_path, join_path, join_with_slash
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import ProxiedHead, Response

if TYPE_CHECKING:
    from torchyard.apiserver.proxy.reverse_proxy import ProxyRequest

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Before the path that the pod gets: /api/v1/namespaces/NAMESPACE/RESOURCE/NAME/proxy
_PREFIX_SEGMENTS = 8
_SURROGATES = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as surrogateescape decodes them


async def proxy(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    if request.method not in _METHODS:
        raise errors.method_not_allowed()
    received = received_request(request)
    raw_path, _, query = received.target.partition("?")
    path, rest = _split_path(raw_path)
    registry = resources.registry
    options = {"kind": ctx.resource.subresources["proxy"].gvk.kind, "apiVersion": "v1"}
    await registry.admission.review(registry, ctx, "CONNECT", {**options, **({"path": rest} if rest else {})})
    find_target = pod_target if ctx.resource.plural == "pods" else service_target
    target = find_target(registry.lookup, ctx.namespace, ctx.name)
    question = f"?{query}" if query else ""
    if not rest and request.method in ("GET", "HEAD") and not is_upgrade(request):
        headers = [("Cache-Control", "no-cache, private"), ("Location", f"{escape_path(path)}/{question}")]
        return Response(301, is_raw=True, proxied=ProxiedHead(headers))
    received.ends_with_client = True
    await load_client()
    from torchyard.apiserver.proxy.reverse_proxy import forward

    proxy_request = _proxy_request(request, target, path, rest, question)
    if is_upgrade(request) and request.incoming is not None:
        from torchyard.apiserver.proxy.upgrade_proxy import forward_upgrade

        return await forward_upgrade(proxy_request, registry.dial, request.incoming)
    return sandbox_page(request, await forward(proxy_request, registry.dial))


def _split_path(raw_path: str) -> tuple[bytes, str]:
    """The decoded path of the request, and what follows `/proxy` in it, cleaned, as text."""
    path = unquote_to_bytes(raw_path)
    segments = path.split(b"/")[_PREFIX_SEGMENTS:]
    rest = "/" + "/".join(segment.decode("utf-8", "surrogateescape") for segment in segments) if segments else ""
    return path, join_with_slash("", rest)


def _proxy_request(request: Request, target: ProxyTarget, path: bytes, rest: str, question: str) -> ProxyRequest:
    from torchyard.apiserver.proxy.reverse_proxy import ProxyRequest

    received = received_request(request)
    own_path = path.decode("utf-8", "surrogateescape")
    suffix = f"{rest}/" if own_path.endswith("/") and not rest.endswith("/") else rest
    prefix = own_path.removesuffix(suffix) if suffix else own_path
    escaped = escape_path(rest.encode("utf-8", "surrogateescape")) or "/"
    forwarded_uri = join_path(prefix, escaped) + ("/" if escaped.endswith("/") else "")
    return ProxyRequest(
        target=target,
        method=request.method,
        path=f"{escaped}{question}",
        headers=client_headers(request),
        body=received.body_stream or request.body,
        prefix=prefix,
        # A header is written as UTF-8: other bytes are escaped.
        forwarded_uri=_SURROGATES.sub(lambda byte: f"%{ord(byte[0]) - 0xDC00:02X}", forwarded_uri),
        remote=received.remote,
    )
