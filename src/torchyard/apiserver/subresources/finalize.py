"""finalize: the finalizers in a Namespace's spec, which its controller removes when the namespace is empty."""

from __future__ import annotations

from torchyard.api import errors
from torchyard.api.cluster.validation import validate_finalizers
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.verbs.metadata import check_scope
from torchyard.apiserver.verbs.update import change, check_uid
from torchyard.apiserver.wire import body as bodies


def _finalizer_errors(new: Object, _old: Object) -> list[FieldError]:
    return validate_finalizers(new)


async def finalize(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    if ctx.verb != "update":
        raise errors.method_not_allowed()
    submitted = await ctx.compute(bodies.read_object, ctx, request.body, request.headers.get("Content-Type", ""))
    check_scope(ctx, submitted)

    def compute(obj: Object) -> Object:
        check_uid(ctx, submitted["metadata"], obj["metadata"]["uid"])
        version = (submitted.get("metadata") or {}).get("resourceVersion")
        if version:
            obj["metadata"]["resourceVersion"] = version
        finalizers = (submitted.get("spec") or {}).get("finalizers")
        obj["spec"] = {"finalizers": finalizers} if finalizers else {}
        return obj

    return await resources.respond(
        ctx, request, await change(resources.registry, ctx, compute, validate=_finalizer_errors)
    )
