"""eviction: delete a pod unless a PodDisruptionBudget forbids it.

An eviction takes one of the disruptions that a budget allows, so that several at once do not use the same one. The
disruption controller counts again when the pod is gone.

As upstream, the preconditions are compared when the pod is marked, which is after the budget: an eviction that fails
there has used a disruption until the controller counts again.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from torchyard.api import conditions, errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.selectors import from_object
from torchyard.api.times import to_rfc3339
from torchyard.api.workload import messages
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.verbs.delete import DeleteOptions, check_preconditions, delete, read_delete_options
from torchyard.apiserver.verbs.get import find
from torchyard.apiserver.verbs.metadata import check_namespace
from torchyard.apiserver.verbs.update import change
from torchyard.apiserver.wire import body as bodies

CREATED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
GVK = GroupVersionKind("policy", "v1", "Eviction")
_MANAGER = "kube-apiserver"
# The most evicted pods that a budget waits for.
_MAX_DISRUPTED = 2000


async def evict(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    if ctx.verb != "create":
        raise errors.method_not_allowed()
    eviction = await ctx.compute(bodies.read_object, ctx, request.body, request.headers.get("Content-Type", ""), GVK)
    check_namespace(ctx, eviction)
    if eviction["metadata"].get("name") != ctx.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    registry = resources.registry
    await registry.admission.review(registry, ctx, "CREATE", eviction)
    options = read_delete_options(eviction.get("deleteOptions"), Query())
    pod = find(registry, ctx).object()
    is_dry_run = ctx.dry_run or options.dry_run
    unhealthy_in = await _spend_budget(registry, ctx, pod, is_dry_run=is_dry_run) if _needs_budget(pod) else ""
    is_conditional = bool(options.revision)
    if unhealthy_in:
        # The pod may become healthy meanwhile. As upstream, this replaces the client's own precondition.
        options = replace(options, revision=pod["metadata"]["resourceVersion"])
    try:
        await _delete_pod(registry, ctx, options, is_dry_run=is_dry_run)
    except errors.StatusError as error:
        if error.reason == "Conflict" and unhealthy_in and not is_conditional:
            raise _in_progress(unhealthy_in) from error
        raise
    return Response(201, orjson.dumps(CREATED))


async def _delete_pod(registry: Registry, ctx: RequestContext, options: DeleteOptions, *, is_dry_run: bool) -> None:
    """Mark and delete the pod. The mark changes the resourceVersion that the delete compares."""
    if not is_dry_run:
        revision = await _mark_disrupted(registry, ctx, options)
        if options.revision:
            options = replace(options, revision=revision)
    ctx.subresource = ""
    await delete(registry, ctx, options)


def _needs_budget(pod: Object) -> bool:
    """A pod that has finished, has not started or is being deleted already needs no budget."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed", "Pending") and not pod["metadata"].get("deletionTimestamp")


async def _spend_budget(registry: Registry, ctx: RequestContext, pod: Object, *, is_dry_run: bool) -> str:
    """Take a disruption from the pod's budget, or raise. Returns the budget's name if an unhealthy pod needs none."""
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        budget
        for budget in registry.lookup.list("policy", "poddisruptionbudgets", ctx.namespace)
        if from_object((budget.get("spec") or {}).get("selector")).matches(labels)
    ]
    if len(budgets) > 1:
        raise errors.internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    if not budgets:
        return ""
    name = str(budgets[0]["metadata"]["name"])
    if not conditions.has_true_condition(pod, "Ready") and _allows_unhealthy(budgets[0]):
        return name
    resource = registry.catalog.find("policy", "v1", "poddisruptionbudgets")
    assert resource is not None
    budget_ctx = RequestContext(resource, "update", ctx.namespace, name, ctx.user, ctx.now, subresource="status")
    budget_ctx.manager, budget_ctx.dry_run = _MANAGER, is_dry_run
    await change(registry, budget_ctx, lambda budget: _decremented(budget_ctx, budget, ctx.name))
    return ""


def _allows_unhealthy(budget: Object) -> bool:
    """Whether a pod that is not ready may go: if the policy says so, or while enough others are healthy."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _decremented(ctx: RequestContext, budget: Object, pod: str) -> Object:
    name, status = budget["metadata"]["name"], dict(budget.get("status") or {})
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _in_progress(name)
    disrupted = status.get("disruptedPods") or {}
    if len(disrupted) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden("poddisruptionbudgets", "policy", name, why)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        raise _too_many(
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods"
            f" and has {status.get('currentHealthy', 0)} currently"
        )
    now = to_rfc3339(ctx.now)
    status |= {"disruptionsAllowed": allowed - 1, "disruptedPods": {**disrupted, pod: now}}
    if allowed == 1:
        status["conditions"] = conditions.with_condition(
            status.get("conditions") or (),
            messages.DISRUPTION_ALLOWED,
            False,
            reason=messages.INSUFFICIENT_PODS,
            message="",
            now=now,
            generation=status.get("observedGeneration", 0),
        )
    return {**budget, "status": status}


_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_RETRY_SECONDS = 10


def _too_many(cause: str) -> errors.StatusError:
    return errors.StatusError(429, "TooManyRequests", _REFUSED, details=_causes(cause))


def _in_progress(budget: str) -> errors.StatusError:
    cause = f"The disruption budget {budget} is still being processed by the server."
    return errors.too_many_requests(_REFUSED, retry_after=_RETRY_SECONDS, **_causes(cause))


def _causes(cause: str) -> Object:
    return {"causes": [{"reason": "DisruptionBudget", "message": cause}]}


async def _mark_disrupted(registry: Registry, ctx: RequestContext, options: DeleteOptions) -> str:
    """Write why the pod is deleted to its conditions, so that its owner can read it. Returns its resourceVersion."""
    pod_ctx = RequestContext(ctx.resource, "update", ctx.namespace, ctx.name, ctx.user, ctx.now, subresource="status")
    pod_ctx.manager = _MANAGER

    def mark(pod: Object) -> Object:
        check_preconditions(ctx, pod, options)
        status = pod.get("status") or {}
        others = [entry for entry in status.get("conditions") or () if entry["type"] != "DisruptionTarget"]
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "observedGeneration": pod["metadata"].get("generation", 1),
            "lastProbeTime": None,
            "lastTransitionTime": to_rfc3339(ctx.now),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        return {**pod, "status": {**status, "conditions": [*others, target]}}

    return str((await change(registry, pod_ctx, mark)).rev)
