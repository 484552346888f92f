"""create: a new object, or 409 if its name is taken."""

from __future__ import annotations

from typing import Any

import orjson

from torchyard.api import errors
from torchyard.api.names import generate_name, validate_metadata
from torchyard.api.resources import Resource
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.apply.endpoint import endpoint_of
from torchyard.apiserver.apply.managed_fields import record_update
from torchyard.apiserver.registry.conversion import from_storage, keep, to_storage
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.store import RevisionConflict
from torchyard.apiserver.verbs.metadata import begin_create, check_scope, ordered

# As upstream: a generated name that collides is tried again this often before the client is told.
NAME_ATTEMPTS = 8


async def create(registry: Registry, ctx: RequestContext, obj: dict[str, Any], *, recorded: bool = False) -> Record:
    """Create an object given in the version of the call's resource. `recorded`: its managed fields are set already."""
    obj, generated = await completed(registry, ctx, obj, recorded=recorded)
    return await saved(registry, ctx, obj, generated=generated)


async def completed(
    registry: Registry, ctx: RequestContext, obj: dict[str, Any], *, recorded: bool = False
) -> tuple[dict[str, Any], bool]:
    """The object as it is to be stored, checked and admitted, and whether its name was generated."""
    resource = ctx.resource
    storage = registry.catalog.storage(resource)
    strategy = resource.strategy
    check_scope(ctx, obj)
    if resource.custom is not None and f"{resource.plural}.{resource.group}" in registry.terminating:
        why = "create not allowed while custom resource definition is terminating"
        raise errors.forbidden(resource.plural, resource.group, obj["metadata"].get("name", ""), why)
    obj = to_storage(resource, storage, obj)
    strategy.default(obj)
    if not recorded:
        record_managed(ctx, storage, None, obj)
    await registry.admission.mutate(registry, ctx, "CREATE", obj, None)
    generated = begin_create(registry, ctx, obj)
    metadata = obj["metadata"]
    allocator = registry.allocators.get((storage.group, storage.plural))
    if allocator is not None and allocator.before_validation:
        allocator.allocate(registry, obj, None)
    found = validate_metadata(
        metadata,
        namespaced=resource.namespaced,
        name_rule=strategy.name_rule,
        built_in=storage.custom is None and strategy.qualified_finalizers,
    )
    if not ctx.trusted:
        found += strategy.validate(obj)
    if found:
        raise ctx.invalid(metadata["name"], found)
    for sentence in strategy.warnings(obj):
        ctx.warn(sentence)
    if allocator is not None and not allocator.before_validation:
        allocator.allocate(registry, obj, None)
    await registry.admission.validate(registry, ctx, "CREATE", obj, None)
    keep(resource, storage, obj)
    return ordered(storage, obj), generated


async def saved(registry: Registry, ctx: RequestContext, obj: dict[str, Any], *, generated: bool) -> Record:
    """Store a new object; a generated name that is taken makes way for another."""
    resource, metadata = ctx.resource, obj["metadata"]
    namespace = ctx.namespace if resource.namespaced else ""
    for _ in range(NAME_ATTEMPTS if generated else 1):
        key = registry.key(resource, namespace, metadata["name"])
        if ctx.dry_run:
            if registry.store.get(key) is None:
                return unsaved(key, obj)
        else:
            try:
                return await registry.store.put(key, obj, expected=0)
            except RevisionConflict:
                metadata.pop("resourceVersion", None)
        if generated:
            taken = metadata["name"]
            metadata["name"] = generate_name(metadata["generateName"], registry.random)
            resource.strategy.rename(obj, taken)
    raise errors.already_exists(resource.plural, resource.group, metadata["name"])


def record_managed(
    ctx: RequestContext, storage: Resource, before: dict[str, Any] | None, after: dict[str, Any]
) -> None:
    """Note in the object who set which field, by the names of the version that the client speaks."""
    resource = ctx.resource
    endpoint = endpoint_of(resource, ctx.subresource)
    if resource is not storage and resource.custom is None:
        # the metadata, where the note goes, is the same object in either version
        before = before and from_storage(resource, storage, dict(before))
        after = from_storage(resource, storage, dict(after))
    record_update(endpoint, before, after, manager=ctx.field_manager, now=to_rfc3339(ctx.now))


def unsaved(key: str, obj: dict[str, Any]) -> Record:
    """The record of a dry run: what would have been written."""
    return Record(key, 0, orjson.dumps(obj))
