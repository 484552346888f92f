"""eviction: delete a pod unless a PodDisruptionBudget forbids it."""

from __future__ import annotations

import orjson

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.selectors import from_object
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.verbs.delete import delete, read_delete_options
from torchyard.apiserver.verbs.get import find
from torchyard.apiserver.verbs.metadata import check_namespace
from torchyard.apiserver.wire import body as bodies

CREATED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
GVK = GroupVersionKind("policy", "v1", "Eviction")


async def evict(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    if ctx.verb != "create":
        raise errors.method_not_allowed()
    eviction = await ctx.compute(bodies.read_object, ctx, request.body, request.headers.get("Content-Type", ""), GVK)
    check_namespace(ctx, eviction)
    if eviction["metadata"].get("name") != ctx.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    await resources.registry.admission.review(resources.registry, ctx, "CREATE", eviction)
    options = read_delete_options(eviction.get("deleteOptions"), Query())
    pod = find(resources.registry, ctx).object()
    if _needs_budget(pod):
        _check_budgets(resources, ctx, pod)
    ctx.subresource = ""
    await delete(resources.registry, ctx, options)
    return Response(201, orjson.dumps(CREATED))


def _needs_budget(pod: Object) -> bool:
    """A pod that has finished, has not started or is being deleted already needs no budget."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed", "Pending") and not pod["metadata"].get("deletionTimestamp")


def _check_budgets(resources: ResourceHandler, ctx: RequestContext, pod: Object) -> None:
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        budget
        for budget in resources.registry.lookup.list("policy", "poddisruptionbudgets", ctx.namespace)
        if from_object((budget.get("spec") or {}).get("selector")).matches(labels)
    ]
    if len(budgets) > 1:
        raise errors.internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    for budget in budgets:
        status = budget.get("status") or {}
        if status.get("disruptionsAllowed", 0) <= 0:
            name = budget["metadata"]["name"]
            needs = (
                f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods"
                f" and has {status.get('currentHealthy', 0)} currently"
            )
            raise errors.StatusError(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
                details={"causes": [{"reason": "DisruptionBudget", "message": needs}]},
            )
