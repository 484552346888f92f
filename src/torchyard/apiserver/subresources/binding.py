"""binding: a scheduler assigns a pod to a node, once."""

from __future__ import annotations

import orjson

from torchyard.api import errors, field_errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.subresources.eviction import CREATED
from torchyard.apiserver.verbs.metadata import check_namespace
from torchyard.apiserver.verbs.update import change
from torchyard.apiserver.wire import body as bodies

GVK = GroupVersionKind("", "v1", "Binding")


async def bind(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    if ctx.verb != "create":
        raise errors.method_not_allowed()
    binding = await ctx.compute(bodies.read_object, ctx, request.body, request.headers.get("Content-Type", ""), GVK)
    check_namespace(ctx, binding)
    name = binding["metadata"].get("name") or ""
    if ctx.name and name != ctx.name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    ctx.name = ctx.name or name
    await resources.registry.admission.review(resources.registry, ctx, "CREATE", binding)
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node", "Minion"):
        error = field_errors.not_supported("target.kind", target["kind"], ["Node", "<empty>"])
        raise errors.invalid(GVK.kind, "", ctx.name, [error])
    if not target.get("name"):
        raise errors.invalid(GVK.kind, "", ctx.name, [field_errors.required("target.name")])
    pods = resources.registry.catalog.find("", "v1", "pods")
    assert pods is not None
    ctx.resource, ctx.subresource = pods, "binding"
    await change(
        resources.registry,
        ctx,
        lambda pod: _bound(ctx, pod, binding),
        managed_fields_set=True,
        validate=lambda _new, _old: [],
    )
    return Response(201, orjson.dumps(CREATED))


def _bound(ctx: RequestContext, pod: Object, binding: Object) -> Object:
    """The pod with its node (upstream's BindingREST.setPodNodeAndMetadata)."""
    node = binding["target"]["name"]
    metadata, spec = pod["metadata"], pod["spec"]
    uid = (binding.get("metadata") or {}).get("uid")
    if uid and uid != metadata["uid"]:
        raise ctx.conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}")
    if metadata.get("deletionTimestamp"):
        raise ctx.conflict(f"pod {ctx.name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise ctx.conflict(f'pod {ctx.name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise ctx.conflict(f"pod {ctx.name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = node
    for field in ("annotations", "labels"):
        more = (binding.get("metadata") or {}).get(field)
        if more:
            metadata[field] = {**(metadata.get(field) or {}), **more}
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "observedGeneration": metadata.get("generation", 1),
        "lastProbeTime": None,
        "lastTransitionTime": to_rfc3339(ctx.now),
    }
    status = pod.setdefault("status", {})
    others = [condition for condition in status.get("conditions") or () if condition["type"] != "PodScheduled"]
    status["conditions"] = [*others, scheduled]
    return pod
