"""What hangs below an object's path: one file per subresource, found by (group, plural, name)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.routing.route import Route
from torchyard.apiserver.subresources import pending_workloads
from torchyard.apiserver.subresources.binding import bind
from torchyard.apiserver.subresources.eviction import evict
from torchyard.apiserver.subresources.finalize import finalize
from torchyard.apiserver.subresources.pod_parts import change_part
from torchyard.apiserver.subresources.pod_streams import stream
from torchyard.apiserver.subresources.refused import refuse
from torchyard.apiserver.subresources.scale import scale
from torchyard.apiserver.subresources.status import status
from torchyard.apiserver.subresources.token import request_token

if TYPE_CHECKING:
    from torchyard.apiserver.routing.router import Router

Handler = Callable[["Router", RequestContext, Request, Route], Awaitable[Response]]

SUBRESOURCES: dict[tuple[str, str, str], Handler] = {
    ("*", "*", "status"): status,
    ("*", "*", "scale"): scale,
    ("certificates.k8s.io", "certificatesigningrequests", "approval"): status,
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
    (pending_workloads.GROUP, "clusterqueues", pending_workloads.PENDING): pending_workloads.pending,
    (pending_workloads.GROUP, "localqueues", pending_workloads.PENDING): pending_workloads.pending,
    ("", "nodes", "proxy"): refuse,
    ("", "pods", "proxy"): refuse,
    ("", "services", "proxy"): refuse,
}
