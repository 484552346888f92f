"""Admission as the verbs call it: built-in plugins, then webhooks and policies, then quota."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.apiserver.access import rbac
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes, Operation
from torchyard.apiserver.access.admission.chain import BuiltInAdmission
from torchyard.apiserver.access.lister import CachingLister, LoopLister
from torchyard.apiserver.registry.registry import AdmissionInputs, Registry, ResourceKey
from torchyard.apiserver.request.computation import LARGE_BYTES
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.watch import StoreEvent
from torchyard.apiserver.verbs.update import change

if TYPE_CHECKING:
    from torchyard.apiserver.admission.dynamic import DynamicAdmission

T = TypeVar("T")

CONFIGURATIONS = (
    "/mutatingwebhookconfigurations.admissionregistration.k8s.io/",
    "/validatingwebhookconfigurations.admissionregistration.k8s.io/",
    "/validatingadmissionpolicybindings.admissionregistration.k8s.io/",
)
# The collections that the built-in plugins read for new objects, by resource.
INPUTS: dict[ResourceKey, tuple[ResourceKey, ...]] = {
    ("", "pods"): (
        ("", "namespaces"),
        ("", "serviceaccounts"),
        ("", "limitranges"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("node.k8s.io", "runtimeclasses"),
    )
}


class AdmissionController:
    def __init__(self, built_in: BuiltInAdmission) -> None:
        self._built_in = built_in
        self._lookup: CachingLister | None = None
        self._dynamic: DynamicAdmission | None = None

    async def close(self) -> None:
        if self._dynamic is not None:
            await self._dynamic.close()

    async def mutate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> bool:
        """Complete `new` in place, or reject it; returns whether a webhook changed it."""
        attributes = self._attributes(registry, ctx, operation, new, old)
        for sentence in await _compute(ctx, self._mutate, attributes):
            ctx.warn(sentence)
        dynamic = self._dynamic_admission(registry, ctx)
        is_changed = dynamic is not None and await dynamic.mutate(ctx, operation, new, old)
        self._built_in.authorize(attributes)
        return is_changed

    def _mutate(self, attributes: AdmissionAttributes) -> list[str]:
        warnings = self._built_in.warnings(attributes)
        self._built_in.mutate(attributes)
        return warnings

    async def validate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> None:
        """Reject what is not allowed; the last step before a write."""
        attributes = self._attributes(registry, ctx, operation, new, old)
        await _compute(ctx, self._built_in.validate, attributes)
        dynamic = self._dynamic_admission(registry, ctx)
        if dynamic is not None:
            await dynamic.validate(ctx, operation, new, old)
        for quota, used in self._built_in.charge(attributes).items():
            if not ctx.dry_run:
                await _charge_quota(registry, ctx, quota, used)

    async def review(self, registry: Registry, ctx: RequestContext, operation: Operation, obj: Object) -> None:
        """Let webhooks and policies reject a request that stores no object: a connection, an eviction, a token."""
        dynamic = self._dynamic_admission(registry, ctx)
        if dynamic is not None:
            await dynamic.mutate(ctx, operation, obj, None)
            await dynamic.validate(ctx, operation, obj, None)

    def inputs(self, registry: Registry, resource: Resource) -> AdmissionInputs | None:
        """None with webhooks, policies or quota, which look at each object."""
        lookup = self._lookup or self._start(registry)
        collections = INPUTS.get((resource.group, resource.plural))
        if collections is None or self._dynamic is not None or lookup.list("", "resourcequotas"):
            return None
        return tuple([lookup.revision(group, plural) for group, plural in collections])

    def _dynamic_admission(self, registry: Registry, ctx: RequestContext) -> DynamicAdmission | None:
        """Webhooks and policies if any were ever configured; most planes never load them.

        They do not see the server's own writes: a plane starts before the pods of its webhooks do.
        """
        if self._lookup is None:
            self._start(registry)
        return None if ctx.trusted else self._dynamic

    def _start(self, registry: Registry) -> CachingLister:
        def configured(_: StoreEvent) -> None:
            if self._dynamic is None:
                from torchyard.apiserver.admission.dynamic import DynamicAdmission

                self._dynamic = DynamicAdmission(registry)

        for collection in CONFIGURATIONS:
            registry.store.listen(collection, configured)
        self._lookup = CachingLister(registry.lookup)
        return self._lookup

    def _attributes(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> AdmissionAttributes:
        return AdmissionAttributes(
            operation,
            ctx.resource.group,
            ctx.resource.plural,
            ctx.namespace,
            ctx.name,
            ctx.user,
            self._lookup or self._start(registry),
            new,
            old,
            ctx.subresource,
            ctx.dry_run,
        )


async def _compute(
    ctx: RequestContext, plugins: Callable[[AdmissionAttributes], T], attributes: AdmissionAttributes
) -> T:
    """Run built-in plugins; for a large object in a thread, from which they read the store through the loop.

    The plugin for roles also reads the authorizer, which belongs to the loop.
    """
    if ctx.size > LARGE_BYTES and attributes.group != rbac.GROUP:
        attributes = attributes._replace(lister=LoopLister(attributes.lister))
        return await ctx.compute(plugins, attributes)
    return plugins(attributes)


async def _charge_quota(registry: Registry, ctx: RequestContext, quota: str, used: dict[str, str]) -> None:
    """Write the new usage into a quota's status, before the write that uses it."""
    resource = registry.catalog.find("", "v1", "resourcequotas")
    assert resource is not None
    quota_ctx = RequestContext(resource, "update", ctx.namespace, quota, ctx.user, ctx.now, subresource="status")
    quota_ctx.manager = "kube-apiserver"

    def charge(current: Object) -> Object:
        status = current.get("status") or {}
        hard = (current.get("spec") or {}).get("hard") or {}
        usage = {**dict.fromkeys(hard, "0"), **(status.get("used") or {}), **used}
        return {**current, "status": {"hard": hard, "used": {name: usage[name] for name in usage if name in hard}}}

    try:
        await change(registry, quota_ctx, charge)
    except StatusError as error:
        if error.status not in (404, 409):  # the quota is gone, or too many writes charge it at once
            raise
