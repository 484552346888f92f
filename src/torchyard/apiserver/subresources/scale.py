"""scale: how many replicas, in one shape for every kind that has some."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import orjson

from torchyard.api import errors, field_errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.schema.builtin import type_of
from torchyard.api.selectors import from_map, from_object
from torchyard.apiserver.call import Call
from torchyard.apiserver.crd.scale import ScalePaths, read_path, write_path
from torchyard.apiserver.exchange import Request, Response
from torchyard.apiserver.route import Route
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.verbs.apply.endpoint import Endpoint
from torchyard.apiserver.verbs.apply.managed import check_applied
from torchyard.apiserver.verbs.get import find
from torchyard.apiserver.verbs.patch.content import APPLY
from torchyard.apiserver.verbs.patching import applied, patched, requested
from torchyard.apiserver.verbs.update import change
from torchyard.apiserver.wire import body as bodies

if TYPE_CHECKING:
    from torchyard.apiserver.server import Server


GVK = GroupVersionKind("autoscaling", "v1", "Scale")


async def scale(server: Server, call: Call, request: Request, _route: Route) -> Response:
    api, content_type = server.api, request.headers.get("Content-Type", "")
    if call.verb == "get":
        return _answer(call, find(api, call))
    if call.verb == "update":
        wanted = bodies.read_object(call, request.body, content_type, GVK)
        record = await change(api, call, lambda obj: _rescaled(call, obj, wanted))
    elif call.verb == "patch":
        read, kind = requested(call, request.body, content_type), type_of(GVK)

        def compute(obj: Object) -> Object:
            if read.type == APPLY:
                return applied(call, read, obj, _applied_replicas(call, obj, read.document))
            return _rescaled(call, obj, patched(call, read, scale_of(call, obj), gvk=GVK, type=kind))

        record = await change(api, call, compute, recorded=read.type == APPLY)
    else:
        raise errors.method_not_allowed()
    return _answer(call, record)


def _answer(call: Call, record: Record) -> Response:
    return Response(200, orjson.dumps(scale_of(call, record.object())))


def scale_of(call: Call, obj: Object) -> Object:
    """The Scale of an object."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    paths = _paths(call)
    status: Object = {"replicas": read_path(obj, paths.status) or 0}
    selector = _selector(call, obj, paths.selector)
    if selector:
        status["selector"] = selector
    replicas = read_path(obj, paths.spec)
    return {
        "kind": GVK.kind,
        "apiVersion": GVK.api_version,
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


_BUILTIN = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector")


def _paths(call: Call) -> ScalePaths:
    """Where a kind keeps its replicas."""
    return _BUILTIN if call.resource.custom is None else call.resource.custom.scale


def _selector(call: Call, obj: Object, path: str) -> str:
    said = read_path(obj, path) if path else None
    if isinstance(said, str):
        return said
    if not isinstance(said, dict):
        return ""
    return str(from_map(said) if call.resource.kind == "ReplicationController" else from_object(said))


def _applied_replicas(call: Call, obj: Object, wanted: Object) -> Object:
    """What applying a Scale means for the object itself: its replicas, if the Scale says how many."""
    kind = type_of(GVK)
    assert kind is not None
    check_applied(Endpoint(kind, GVK.kind, GVK.api_version), wanted)
    _rescaled(call, copy.deepcopy(obj), wanted)
    config = {"apiVersion": call.resource.api_version, "kind": call.resource.kind, "metadata": {"name": call.name}}
    replicas = (wanted.get("spec") or {}).get("replicas")
    if replicas is not None:
        write_path(config, _paths(call).spec, replicas)
    return config


def _rescaled(call: Call, obj: Object, wanted: Object) -> Object:
    """The object with the replicas a Scale asks for."""
    metadata, replicas = wanted.get("metadata") or {}, (wanted.get("spec") or {}).get("replicas") or 0
    if metadata.get("name", call.name) != call.name:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
        )
    if not isinstance(replicas, int) or replicas < 0:
        error = field_errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid(GVK.kind, GVK.group, call.name, [error])
    if metadata.get("uid", obj["metadata"]["uid"]) != obj["metadata"]["uid"]:
        raise call.conflict(
            f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {obj['metadata']['uid']}"
        )
    if metadata.get("resourceVersion"):
        obj["metadata"]["resourceVersion"] = metadata["resourceVersion"]
    write_path(obj, _paths(call).spec, replicas)
    return obj
