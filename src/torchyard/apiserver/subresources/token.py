"""token: a service account's bearer token, bound in time and, if asked, to a pod or secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.apiserver.call import Call
from torchyard.apiserver.exchange import Request, Response
from torchyard.apiserver.route import Route
from torchyard.apiserver.wire import body as bodies

if TYPE_CHECKING:
    from torchyard.apiserver.server import Server

GVK = GroupVersionKind("authentication.k8s.io", "v1", "TokenRequest")


async def request_token(server: Server, call: Call, request: Request, _route: Route) -> Response:
    if call.verb != "create":
        raise errors.method_not_allowed()
    asked = bodies.read_object(call, request.body, request.headers.get("Content-Type", ""), GVK)
    return Response(201, orjson.dumps(server.guard.accounts.request(call.namespace, call.name, asked)))
