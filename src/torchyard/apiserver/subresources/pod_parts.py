"""ephemeralcontainers, resize: the two parts of a pod's spec that have a door of their own."""

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
from torchyard.apiserver.verbs.patch import applied, patched, requested
from torchyard.apiserver.verbs.update import change
from torchyard.apiserver.wire import body as bodies


def _with_debuggers(pod: Object, sent: Object) -> Object:
    return {**pod, "spec": {**pod["spec"], "ephemeralContainers": (sent.get("spec") or {}).get("ephemeralContainers")}}


# What may change through each door, and the rules for it.
_PARTS: dict[str, tuple[Callable[[Object, Object], Object], Callable[[Object, Object], list[FieldError]]]] = {
    "ephemeralcontainers": (_with_debuggers, validate_ephemeral_containers),
    "resize": (apply_resize, validate_resize),
}


async def change_part(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    """GET shows the pod; PUT and PATCH change the one part, whatever else they say."""
    with_part, rules = _PARTS[ctx.subresource]
    content_type = request.headers.get("Content-Type", "")
    if ctx.verb == "get":
        return resources.respond(ctx, request, find(resources.registry, ctx))
    if ctx.verb == "update":
        sent = bodies.read_object(ctx, request.body, content_type)
        record = await change(resources.registry, ctx, lambda pod: _pinned(pod, sent, with_part), validate=rules)
    elif ctx.verb == "patch":
        read = requested(ctx, request.body, content_type)

        def compute(pod: Object) -> Object:
            if read.type != APPLY:
                return _pinned(pod, patched(ctx, read, pod), with_part)
            sent = applied(ctx, read, pod)
            result = _pinned(pod, sent, with_part)
            result["metadata"]["managedFields"] = sent["metadata"].get("managedFields")
            return result

        record = await change(resources.registry, ctx, compute, managed_fields_set=read.type == APPLY, validate=rules)
    else:
        raise errors.method_not_allowed()
    return resources.respond(ctx, request, record)


def _pinned(pod: Object, sent: Object, with_part: Callable[[Object, Object], Object]) -> Object:
    """The pod with the part of it that was sent, and the sender's idea of its version."""
    version = (sent.get("metadata") or {}).get("resourceVersion")
    metadata = {**pod["metadata"], "resourceVersion": version or pod["metadata"]["resourceVersion"]}
    return {**with_part(pod, sent), "metadata": metadata}
