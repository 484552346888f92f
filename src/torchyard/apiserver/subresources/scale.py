"""scale: the number of replicas, as the same Scale object for every kind that has replicas."""

from __future__ import annotations

import copy

import orjson

from torchyard.api import errors, field_errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.schema.builtin import type_of
from torchyard.api.selectors import from_map, from_object
from torchyard.apiserver.apply.endpoint import Endpoint
from torchyard.apiserver.apply.managed_fields import check_applied
from torchyard.apiserver.crd.scale import ScalePaths, read_path, write_path
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.patch.parse import APPLY
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.verbs.get import find
from torchyard.apiserver.verbs.metadata import check_scope
from torchyard.apiserver.verbs.patch import applied, patched, read_request_patch
from torchyard.apiserver.verbs.update import change
from torchyard.apiserver.wire import body as bodies

GVK = GroupVersionKind("autoscaling", "v1", "Scale")


async def scale(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    registry, content_type = resources.registry, request.headers.get("Content-Type", "")
    if ctx.verb == "get":
        return await _respond(registry, ctx, find(registry, ctx))
    if ctx.verb == "update":
        submitted = await ctx.compute(bodies.read_object, ctx, request.body, content_type, GVK)
        check_scope(ctx, submitted)
        record = await change(registry, ctx, lambda obj: _set_replicas(ctx, obj, submitted))
    elif ctx.verb == "patch":
        patch = await ctx.compute(read_request_patch, ctx, request.body, content_type)
        kind = type_of(GVK)

        def compute(obj: Object) -> Object:
            if patch.type == APPLY:
                return applied(ctx, patch, obj, _applied_replicas(ctx, obj, patch.document))
            return _set_replicas(ctx, obj, patched(ctx, patch, scale_of(ctx, obj), gvk=GVK, type=kind))

        record = await change(registry, ctx, compute, managed_fields_set=patch.type == APPLY)
    else:
        raise errors.method_not_allowed()
    return await _respond(registry, ctx, record)


async def _respond(registry: Registry, ctx: RequestContext, record: Record) -> Response:
    view = await registry.in_version(ctx.resource, record)
    return Response(200, orjson.dumps(scale_of(ctx, view.object())))


def scale_of(ctx: RequestContext, obj: Object) -> Object:
    """The Scale of an object."""
    metadata = obj["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    paths = _paths(ctx)
    status: Object = {"replicas": read_path(obj, paths.status) or 0}
    selector = _selector(ctx, obj, paths.selector)
    if selector:
        status["selector"] = selector
    replicas = read_path(obj, paths.spec)
    return {
        "kind": GVK.kind,
        "apiVersion": GVK.api_version,
        "metadata": {name: metadata[name] for name in fields if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


_BUILTIN = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector")


def _paths(ctx: RequestContext) -> ScalePaths:
    """The paths of a kind's replicas."""
    return _BUILTIN if ctx.resource.custom is None else ctx.resource.custom.scale


def _selector(ctx: RequestContext, obj: Object, path: str) -> str:
    selector = read_path(obj, path) if path else None
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, dict):
        return ""
    return str(from_map(selector) if ctx.resource.kind == "ReplicationController" else from_object(selector))


def _applied_replicas(ctx: RequestContext, obj: Object, submitted: Object) -> Object:
    """The configuration of the object itself that applying a Scale means: its replicas, if the Scale has any."""
    kind = type_of(GVK)
    assert kind is not None
    check_applied(Endpoint(kind, GVK.kind, GVK.api_version), submitted)
    _set_replicas(ctx, copy.deepcopy(obj), submitted)
    config = {"apiVersion": ctx.resource.api_version, "kind": ctx.resource.kind, "metadata": {"name": ctx.name}}
    replicas = (submitted.get("spec") or {}).get("replicas")
    if replicas is not None:
        write_path(config, _paths(ctx).spec, replicas)
    return config


def _set_replicas(ctx: RequestContext, obj: Object, submitted: Object) -> Object:
    """The object with the replicas of a Scale."""
    metadata, replicas = submitted.get("metadata") or {}, (submitted.get("spec") or {}).get("replicas") or 0
    if metadata.get("name", ctx.name) != ctx.name:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({ctx.name})"
        )
    if not isinstance(replicas, int) or replicas < 0:
        error = field_errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid(GVK.kind, GVK.group, ctx.name, [error])
    if metadata.get("uid", obj["metadata"]["uid"]) != obj["metadata"]["uid"]:
        raise ctx.conflict(
            f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {obj['metadata']['uid']}"
        )
    if metadata.get("resourceVersion"):
        obj["metadata"]["resourceVersion"] = metadata["resourceVersion"]
    write_path(obj, _paths(ctx).spec, replicas)
    return obj
