"""ephemeralcontainers, resize: the two parts of a pod's spec that have a door of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torchyard.api import errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.updates import resized, validate_ephemeral_containers, validate_resize
from torchyard.apiserver.call import Call
from torchyard.apiserver.exchange import Request, Response
from torchyard.apiserver.route import Route
from torchyard.apiserver.verbs.get import find
from torchyard.apiserver.verbs.patch.content import APPLY
from torchyard.apiserver.verbs.patching import applied, patched, requested
from torchyard.apiserver.verbs.update import change
from torchyard.apiserver.wire import body as bodies

if TYPE_CHECKING:
    from torchyard.apiserver.server import Server


def _with_debuggers(pod: Object, sent: Object) -> Object:
    return {**pod, "spec": {**pod["spec"], "ephemeralContainers": (sent.get("spec") or {}).get("ephemeralContainers")}}


# What may change through each door, and the rules for it.
_PARTS: dict[str, tuple[Callable[[Object, Object], Object], Callable[[Object, Object], list[FieldError]]]] = {
    "ephemeralcontainers": (_with_debuggers, validate_ephemeral_containers),
    "resize": (resized, validate_resize),
}


async def change_part(server: Server, call: Call, request: Request, _route: Route) -> Response:
    """GET shows the pod; PUT and PATCH change the one part, whatever else they say."""
    with_part, rules = _PARTS[call.subresource]
    content_type = request.headers.get("Content-Type", "")
    if call.verb == "get":
        return server.answer(call, request, find(server.api, call))
    if call.verb == "update":
        sent = bodies.read_object(call, request.body, content_type)
        record = await change(server.api, call, lambda pod: _pinned(pod, sent, with_part), validate=rules)
    elif call.verb == "patch":
        read = requested(call, request.body, content_type)

        def compute(pod: Object) -> Object:
            if read.type != APPLY:
                return _pinned(pod, patched(call, read, pod), with_part)
            sent = applied(call, read, pod)
            result = _pinned(pod, sent, with_part)
            result["metadata"]["managedFields"] = sent["metadata"].get("managedFields")
            return result

        record = await change(server.api, call, compute, recorded=read.type == APPLY, validate=rules)
    else:
        raise errors.method_not_allowed()
    return server.answer(call, request, record)


def _pinned(pod: Object, sent: Object, with_part: Callable[[Object, Object], Object]) -> Object:
    """The pod with the part of it that was sent, and the sender's idea of its version."""
    version = (sent.get("metadata") or {}).get("resourceVersion")
    metadata = {**pod["metadata"], "resourceVersion": version or pod["metadata"]["resourceVersion"]}
    return {**with_part(pod, sent), "metadata": metadata}
