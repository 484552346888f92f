"""Admission as the verbs see it: the built-in rules, then webhooks, then quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes, Operation
from torchyard.apiserver.access.admission.chain import BuiltInAdmission
from torchyard.apiserver.access.lister import CachingLister
from torchyard.apiserver.registry.registry import Basis, Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.watch import StoreEvent
from torchyard.apiserver.verbs.update import change

if TYPE_CHECKING:
    from torchyard.apiserver.admission.dynamic import DynamicAdmission


CONFIGURATIONS = (
    "/mutatingwebhookconfigurations.admissionregistration.k8s.io/",
    "/validatingwebhookconfigurations.admissionregistration.k8s.io/",
    "/validatingadmissionpolicybindings.admissionregistration.k8s.io/",
)
# What the built-in rules for new pods look at.
POD_RULES = (
    ("", "namespaces"),
    ("", "serviceaccounts"),
    ("", "limitranges"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("node.k8s.io", "runtimeclasses"),
)


class AdmissionController:
    def __init__(self, built_in: BuiltInAdmission) -> None:
        self._built_in = built_in
        self._lookup: CachingLister | None = None
        self._outside: DynamicAdmission | None = None

    async def close(self) -> None:
        if self._outside is not None:
            await self._outside.close()

    async def mutate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> bool:
        """Complete `new` in place, or refuse it; answers whether a webhook changed it."""
        self._built_in.mutate(self._attributes(registry, ctx, operation, new, old))
        outside = self._outside_of(registry)
        return outside is not None and await outside.mutate(ctx, operation, new, old)

    async def validate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> None:
        """Refuse what is not allowed; the last word before a write."""
        attributes = self._attributes(registry, ctx, operation, new, old)
        self._built_in.validate(attributes)
        outside = self._outside_of(registry)
        if outside is not None:
            await outside.validate(ctx, operation, new, old)
        for quota, used in self._built_in.charge(attributes).items():
            if not ctx.dry_run:
                await _note_use(registry, ctx, quota, used)

    def basis(self, registry: Registry) -> Basis | None:
        """None where webhooks or policies are asked, or quotas charged: for each pod anew."""
        lookup = self._lookup or self._begin(registry)
        if self._outside is not None or lookup.list("", "resourcequotas"):
            return None
        return tuple([lookup.revision(group, resource) for group, resource in POD_RULES])

    def _outside_of(self, registry: Registry) -> DynamicAdmission | None:
        """Webhooks and policies, where somebody has configured any: most planes never need them."""
        if self._lookup is None:
            self._begin(registry)
        return self._outside

    def _begin(self, registry: Registry) -> CachingLister:
        def configured(_: StoreEvent) -> None:
            if self._outside is None:
                from torchyard.apiserver.admission.dynamic import DynamicAdmission

                self._outside = DynamicAdmission(registry)

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
            self._lookup or self._begin(registry),
            new,
            old,
            ctx.subresource,
            ctx.dry_run,
        )


async def _note_use(registry: Registry, ctx: RequestContext, quota: str, used: dict[str, str]) -> None:
    """Write into a quota's status what it will be charged, before the write that charges it."""
    resource = registry.catalog.find("", "v1", "resourcequotas")
    assert resource is not None
    noting = RequestContext(resource, "update", ctx.namespace, quota, ctx.user, ctx.now, subresource="status")
    noting.manager = "kube-apiserver"

    def charged(now: Object) -> Object:
        status = now.get("status") or {}
        hard = (now.get("spec") or {}).get("hard") or {}
        known = {**dict.fromkeys(hard, "0"), **(status.get("used") or {}), **used}
        return {**now, "status": {"hard": hard, "used": {name: known[name] for name in known if name in hard}}}

    try:
        await change(registry, noting, charged)
    except StatusError as error:
        if error.status not in (404, 409):  # the quota is gone, or others note what they use all the time
            raise
