"""Subresources of a real server that this one does not have: 501, so that clients fail at once."""

from __future__ import annotations

from torchyard.api import errors
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response


async def refuse(_resources: ResourceHandler, ctx: RequestContext, _request: Request) -> Response:
    raise errors.not_implemented(f"{ctx.resource.plural}/{ctx.subresource}")
