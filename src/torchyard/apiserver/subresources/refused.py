"""What a real server has and this one does not: refused by name, so that nobody waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.api import errors
from torchyard.apiserver.call import Call
from torchyard.apiserver.exchange import Request, Response
from torchyard.apiserver.route import Route

if TYPE_CHECKING:
    from torchyard.apiserver.server import Server


async def refuse(_server: Server, call: Call, _request: Request, _route: Route) -> Response:
    raise errors.not_implemented(f"{call.resource.plural}/{call.subresource}")
