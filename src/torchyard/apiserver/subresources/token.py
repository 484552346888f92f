"""token: a bearer token of a service account, limited in time and, on request, bound to a pod or secret."""

from __future__ import annotations

import orjson

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.verbs.metadata import check_namespace
from torchyard.apiserver.wire import body as bodies
from torchyard.apiserver.wire.negotiate import check_document

GVK = GroupVersionKind("authentication.k8s.io", "v1", "TokenRequest")


async def request_token(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    if ctx.verb != "create":
        raise errors.method_not_allowed()
    check_document(request.headers.get("Accept", ""))
    token_request = await ctx.compute(
        bodies.read_object, ctx, request.body, request.headers.get("Content-Type", ""), GVK
    )
    check_namespace(ctx, token_request)
    await resources.registry.admission.review(resources.registry, ctx, "CREATE", token_request)
    return Response(
        201,
        orjson.dumps(resources.access_control.service_account_tokens.request(ctx.namespace, ctx.name, token_request)),
    )
