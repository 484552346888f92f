"""status: the same object, but only what its controller says of it may change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.api import errors
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.routing.route import Route

if TYPE_CHECKING:
    from torchyard.apiserver.routing.router import Router


async def status(server: Router, ctx: RequestContext, request: Request, _route: Route) -> Response:
    """The verbs know from the call that it is the status they change."""
    if ctx.verb not in ctx.resource.subresources[ctx.subresource].verbs:
        raise errors.method_not_allowed()
    return await server.verb(ctx.verb)(ctx, request)
