"""What a real server has and this one does not: refused by name, so that nobody waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.api import errors
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.routing.route import Route

if TYPE_CHECKING:
    from torchyard.apiserver.routing.router import Router


async def refuse(_server: Router, ctx: RequestContext, _request: Request, _route: Route) -> Response:
    raise errors.not_implemented(f"{ctx.resource.plural}/{ctx.subresource}")
