"""ephemeralcontainers, resize: the two parts of a pod's spec that have a door of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchyard.api import errors
from torchyard.api.faults import Fault
from torchyard.api.pod.updates import validate_ephemeral_containers, validate_resize
from torchyard.apiserver.call import Call
from torchyard.apiserver.exchange import Request, Response
from torchyard.apiserver.route import Route
from torchyard.apiserver.verbs.get import find
from torchyard.apiserver.verbs.patching import patched, requested
from torchyard.apiserver.verbs.update import change
from torchyard.apiserver.wire import body as bodies

if TYPE_CHECKING:
    from torchyard.apiserver.server import Server

Object = dict[str, Any]

# What may change through each door, and the rules for it.
_PARTS: dict[str, tuple[tuple[str, ...], Callable[[Object, Object], list[Fault]]]] = {
    "ephemeralcontainers": (("ephemeralContainers",), validate_ephemeral_containers),
    "resize": (("containers", "initContainers", "resources"), validate_resize),
}


async def change_part(server: Server, call: Call, request: Request, _route: Route) -> Response:
    """GET shows the pod; PUT and PATCH change the one part, whatever else they say."""
    fields, rules = _PARTS[call.subresource]
    content_type = request.headers.get("Content-Type", "")
    if call.verb == "get":
        return server.answer(call, request, find(server.api, call))
    if call.verb == "update":
        sent = bodies.read_object(call, request.body, content_type)
        record = await change(server.api, call, lambda pod: _with_part(pod, sent, fields), validate=rules)
    elif call.verb == "patch":
        read = requested(call, request.body, content_type)

        def compute(pod: Object) -> Object:
            return _with_part(pod, patched(call, read, pod), fields)

        record = await change(server.api, call, compute, validate=rules)
    else:
        raise errors.method_not_allowed()
    return server.answer(call, request, record)


def _with_part(pod: Object, sent: Object, fields: tuple[str, ...]) -> Object:
    """The pod with these fields of its spec as sent, and the sender's idea of its version."""
    version = (sent.get("metadata") or {}).get("resourceVersion")
    spec = {name: value for name, value in pod["spec"].items() if name not in fields}
    spec |= {name: value for name, value in (sent.get("spec") or {}).items() if name in fields}
    metadata = {**pod["metadata"], "resourceVersion": version or pod["metadata"]["resourceVersion"]}
    return {**pod, "metadata": metadata, "spec": spec}
