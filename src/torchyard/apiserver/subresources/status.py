"""status: the same object, of which only the status may change."""

from __future__ import annotations

from torchyard.api import errors
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response


async def status(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    """The verbs see from the request context that they change the status."""
    if ctx.verb not in ctx.resource.subresources[ctx.subresource].verbs:
        raise errors.method_not_allowed()
    return await resources.verbs[ctx.verb](ctx, request)
