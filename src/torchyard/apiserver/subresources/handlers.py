"""Which function handles which subresource, by (group, plural, subresource)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.subresources import pending_workloads
from torchyard.apiserver.subresources.binding import bind
from torchyard.apiserver.subresources.certificate_status import change_status
from torchyard.apiserver.subresources.eviction import evict
from torchyard.apiserver.subresources.finalize import finalize
from torchyard.apiserver.subresources.node_proxy import proxy_node
from torchyard.apiserver.subresources.pod_parts import change_part
from torchyard.apiserver.subresources.pod_streams import stream
from torchyard.apiserver.subresources.proxy import proxy
from torchyard.apiserver.subresources.scale import scale
from torchyard.apiserver.subresources.status import status
from torchyard.apiserver.subresources.token import request_token

Handler = Callable[[ResourceHandler, RequestContext, Request], Awaitable[Response]]

SUBRESOURCE_HANDLERS: dict[tuple[str, str, str], Handler] = {
    ("*", "*", "status"): status,
    ("*", "*", "scale"): scale,
    ("certificates.k8s.io", "certificatesigningrequests", "approval"): change_status,
    ("certificates.k8s.io", "certificatesigningrequests", "status"): change_status,
    ("", "namespaces", "finalize"): finalize,
    ("", "pods", "binding"): bind,
    ("", "pods", "eviction"): evict,
    ("", "pods", "ephemeralcontainers"): change_part,
    ("", "pods", "resize"): change_part,
    ("", "pods", "log"): stream,
    ("", "pods", "exec"): stream,
    ("", "pods", "attach"): stream,
    ("", "pods", "portforward"): stream,
    ("", "serviceaccounts", "token"): request_token,
    (pending_workloads.GROUP, "clusterqueues", pending_workloads.PENDING): pending_workloads.pending_workloads,
    (pending_workloads.GROUP, "localqueues", pending_workloads.PENDING): pending_workloads.pending_workloads,
    ("", "nodes", "proxy"): proxy_node,
    ("", "pods", "proxy"): proxy,
    ("", "services", "proxy"): proxy,
}
