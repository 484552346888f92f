"""Dynamic admission: the webhooks and policies that users configure, wired to the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from torchyard.api import errors
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.apiserver.access.admission.attributes import Operation
from torchyard.apiserver.access.lister import in_loop
from torchyard.apiserver.access.webhooks.dispatch import WebhookDispatcher
from torchyard.apiserver.access.webhooks.policies import PolicyValidator
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes
from torchyard.apiserver.registry.catalog import storage_group
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.service_network.resolver import ServiceResolver

GROUP = "admissionregistration.k8s.io"


@contextlib.asynccontextmanager
async def _time_limit(ctx: RequestContext) -> AsyncIterator[None]:
    """504 when the request's webhooks together take longer than it may; what they took is subtracted from `ctx`."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        async with asyncio.timeout(ctx.timeout):
            yield
    except TimeoutError:
        raise errors.timeout("request did not complete within the allotted timeout") from None
    ctx.timeout = max(ctx.timeout - (loop.time() - start), 0.0)


class DynamicAdmission:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._webhooks = WebhookDispatcher(
            self._configurations,
            self._namespace,
            equivalents=self._equivalents,
            resolve=ServiceResolver(registry.lookup).resolve,
            dial=registry.dial,
            convert=self._convert,
        )
        self._policies = PolicyValidator(
            in_loop(lambda: self._configurations("validatingadmissionpolicies")),
            in_loop(lambda: self._configurations("validatingadmissionpolicybindings")),
            in_loop(self._namespace),
            parameters=in_loop(lambda *kind: tuple(self._parameters(*kind))),
            equivalents=in_loop(self._equivalents),
        )
        self._cache: dict[str, tuple[int, tuple[Object, ...]]] = {}

    async def close(self) -> None:
        await self._webhooks.close()

    async def mutate(self, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None) -> bool:
        """Let webhooks change `new` in place; returns whether one did."""
        async with _time_limit(ctx):
            attributes = self._attributes(ctx, operation, new, old)
            admitted = await self._webhooks.mutate(attributes)
        for sentence in admitted.warnings:
            ctx.warn(sentence)
        if admitted.obj is None or new is None or admitted.obj == attributes.obj:
            return False
        changed = {**admitted.obj, "apiVersion": new.get("apiVersion")}
        new.clear()
        new.update(changed)
        return True

    async def validate(self, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None) -> None:
        if operation == "DELETE":
            # a mutating webhook cannot change a deletion, but it may reject it
            await self.mutate(ctx, operation, new, old)
        attributes = self._attributes(ctx, operation, new, old)
        for sentence in await ctx.compute(self._policies.validate, attributes):
            ctx.warn(sentence)
        async with _time_limit(ctx):
            warnings = await self._webhooks.validate(attributes)
        for sentence in warnings:
            ctx.warn(sentence)

    def _attributes(
        self, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> VersionedAttributes:
        options: Object = {"kind": f"{operation.title()}Options", "apiVersion": "meta.k8s.io/v1"}
        if ctx.manager:
            options["fieldManager"] = ctx.manager
        if ctx.dry_run:
            options["dryRun"] = ["All"]
        if ctx.resource.custom is not None:
            new, old = _in_requested_version(ctx, new), _in_requested_version(ctx, old)
        return VersionedAttributes(
            operation,
            ctx.resource,
            new,
            old,
            namespace=ctx.namespace,
            name=ctx.name or ((new or {}).get("metadata") or {}).get("name", ""),
            subresource=ctx.subresource,
            user=ctx.user.info(),
            dry_run=ctx.dry_run,
            options=options,
        )

    async def _convert(self, resource: Resource, obj: Object) -> Object:
        return await self._registry.converter.convert(resource, obj)

    def _configurations(self, plural: str) -> tuple[Object, ...]:
        revision = self._registry.lookup.revision(GROUP, plural)
        cached = self._cache.get(plural)
        if cached is None or cached[0] != revision:
            cached = self._cache[plural] = (revision, tuple(self._registry.lookup.list(GROUP, plural)))
        return cached[1]

    def _namespace(self, name: str) -> Object | None:
        return self._registry.lookup.get("", "namespaces", "", name)

    def _equivalents(self, resource: Resource) -> Iterable[Resource]:
        """Other resources with the same objects: other versions, or another group with the same storage."""
        group = storage_group(resource)
        return [
            other
            for other in self._registry.catalog
            if other.plural == resource.plural and storage_group(other) == group and other is not resource
        ]

    def _parameters(self, api_version: str, kind: str, namespace: str) -> Iterable[Object]:
        group, _, version = api_version.rpartition("/")
        resource = self._registry.catalog.kind(group, version, kind)
        return self._registry.lookup.list(group, resource.plural, namespace) if resource is not None else ()


def _in_requested_version(ctx: RequestContext, obj: Object | None) -> Object | None:
    """The custom resource as the client sent it: between versions without a webhook only the apiVersion differs."""
    if obj is None or obj.get("apiVersion") == ctx.resource.api_version:
        return obj
    return {**obj, "apiVersion": ctx.resource.api_version}
