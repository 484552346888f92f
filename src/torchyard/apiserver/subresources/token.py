"""token: a service account's bearer token, bound in time and, if asked, to a pod or secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.routing.route import Route
from torchyard.apiserver.wire import body as bodies

if TYPE_CHECKING:
    from torchyard.apiserver.routing.router import Router

GVK = GroupVersionKind("authentication.k8s.io", "v1", "TokenRequest")


async def request_token(server: Router, ctx: RequestContext, request: Request, _route: Route) -> Response:
    if ctx.verb != "create":
        raise errors.method_not_allowed()
    asked = bodies.read_object(ctx, request.body, request.headers.get("Content-Type", ""), GVK)
    return Response(201, orjson.dumps(server.guard.accounts.request(ctx.namespace, ctx.name, asked)))
