"""ephemeralcontainers, resize: the two parts of a pod's spec with a subresource of their own."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api import errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.updates import apply_resize, validate_ephemeral_containers, validate_resize
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


def _with_ephemeral_containers(pod: Object, sent: Object) -> Object:
    return {**pod, "spec": {**pod["spec"], "ephemeralContainers": (sent.get("spec") or {}).get("ephemeralContainers")}}


# By subresource: the function that sets the part, and its validation.
_PARTS: dict[str, tuple[Callable[[Object, Object], Object], Callable[[Object, Object], list[FieldError]]]] = {
    "ephemeralcontainers": (_with_ephemeral_containers, validate_ephemeral_containers),
    "resize": (apply_resize, validate_resize),
}


async def change_part(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    """GET returns the pod; PUT and PATCH change only this part of it."""
    with_part, validate = _PARTS[ctx.subresource]
    content_type = request.headers.get("Content-Type", "")
    if ctx.verb == "get":
        return await resources.respond(ctx, request, find(resources.registry, ctx))
    if ctx.verb == "update":
        submitted = await ctx.compute(bodies.read_object, ctx, request.body, content_type)
        check_scope(ctx, submitted)

        def replace_part(pod: Object) -> Object:
            check_uid(ctx, submitted["metadata"], pod["metadata"]["uid"])
            return _with_submitted_part(pod, submitted, with_part)

        record = await change(resources.registry, ctx, replace_part, validate=validate)
    elif ctx.verb == "patch":
        patch = await ctx.compute(read_request_patch, ctx, request.body, content_type)

        def compute(pod: Object) -> Object:
            if patch.type != APPLY:
                return _with_submitted_part(pod, patched(ctx, patch, pod), with_part)
            submitted = applied(ctx, patch, pod)
            result = _with_submitted_part(pod, submitted, with_part)
            result["metadata"]["managedFields"] = submitted["metadata"].get("managedFields")
            return result

        record = await change(
            resources.registry, ctx, compute, managed_fields_set=patch.type == APPLY, validate=validate
        )
    else:
        raise errors.method_not_allowed()
    return await resources.respond(ctx, request, record)


def _with_submitted_part(pod: Object, sent: Object, with_part: Callable[[Object, Object], Object]) -> Object:
    """The pod with the submitted part, at the submitted resource version."""
    version = (sent.get("metadata") or {}).get("resourceVersion")
    metadata = {**pod["metadata"], "resourceVersion": version or pod["metadata"]["resourceVersion"]}
    return {**with_part(pod, sent), "metadata": metadata}
