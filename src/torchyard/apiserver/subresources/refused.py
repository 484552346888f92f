"""What a real server has and this one does not: refused by name, so that nobody waits for it."""

from __future__ import annotations

from torchyard.api import errors
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response


async def refuse(_resources: ResourceHandler, ctx: RequestContext, _request: Request) -> Response:
    raise errors.not_implemented(f"{ctx.resource.plural}/{ctx.subresource}")
