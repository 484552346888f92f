"""approval and status of a CertificateSigningRequest: who decides does not sign, and who signs does not decide."""

from __future__ import annotations

from torchyard.api.access.certificate_requests import approval_errors, status_errors, with_approval, with_status
from torchyard.api.objects import Object
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.patch.parse import APPLY
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.verbs.get import find
from torchyard.apiserver.verbs.metadata import check_scope
from torchyard.apiserver.verbs.patch import applied, patched, read_request_patch
from torchyard.apiserver.verbs.update import change, check_uid
from torchyard.apiserver.wire import body as bodies

# By subresource: the function that sets its part of the status, and its validation.
_PARTS = {"approval": (with_approval, approval_errors), "status": (with_status, status_errors)}


async def change_status(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    """GET returns the request; PUT and PATCH change only this part of its status."""
    with_part, validate = _PARTS[ctx.subresource]
    content_type = request.headers.get("Content-Type", "")
    if ctx.verb == "get":
        return await resources.respond(ctx, request, find(resources.registry, ctx))
    is_apply = False
    if ctx.verb == "update":
        submitted = await ctx.compute(bodies.read_object, ctx, request.body, content_type)
        check_scope(ctx, submitted)

        def compute(csr: Object) -> Object:
            check_uid(ctx, submitted["metadata"], csr["metadata"]["uid"])
            return with_part(csr, {**submitted, "metadata": dict(submitted["metadata"])}, ctx.now)

    else:
        patch = await ctx.compute(read_request_patch, ctx, request.body, content_type)
        is_apply = patch.type == APPLY

        def compute(csr: Object) -> Object:
            changed = applied(ctx, patch, csr) if is_apply else patched(ctx, patch, csr)
            return with_part(find(resources.registry, ctx).object(), changed, ctx.now)

    record = await change(resources.registry, ctx, compute, managed_fields_set=is_apply, validate=validate)
    return await resources.respond(ctx, request, record)
