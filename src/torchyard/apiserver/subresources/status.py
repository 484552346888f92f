"""status: the same object, but only what its controller says of it may change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.api import errors
from torchyard.apiserver.call import Call
from torchyard.apiserver.exchange import Request, Response
from torchyard.apiserver.route import Route

if TYPE_CHECKING:
    from torchyard.apiserver.server import Server


async def status(server: Server, call: Call, request: Request, _route: Route) -> Response:
    """The verbs know from the call that it is the status they change."""
    if call.verb not in call.resource.subresources[call.subresource].verbs:
        raise errors.method_not_allowed()
    return await server.verb(call.verb)(call, request)
