"""create: a new object, or 409 if its name is taken."""

from __future__ import annotations

import orjson

from torchyard.api import errors
from torchyard.api.names import generate_name, validate_metadata
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.apply.endpoint import endpoint_of
from torchyard.apiserver.apply.managed_fields import record_update
from torchyard.apiserver.registry.conversion import from_storage, prune_to_storage, to_storage
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.errors import RevisionConflict
from torchyard.apiserver.verbs.metadata import (
    DELETION_FIELDS,
    check_scope,
    drop_duplicate_owners,
    ordered,
    prepare_metadata,
)

# As upstream: so many generated names are tried before the client gets a 409.
NAME_ATTEMPTS = 8


async def create(registry: Registry, ctx: RequestContext, obj: Object, *, managed_fields_set: bool = False) -> Record:
    """Create an object in the version of the request's resource.

    `managed_fields_set`: the object's managed fields are complete already.
    """
    obj, is_generated = await admit_new(registry, ctx, obj, managed_fields_set=managed_fields_set)
    record = await store_new(registry, ctx, obj, is_generated=is_generated)
    finish = registry.after_create.get((ctx.resource.group, ctx.resource.plural))
    if finish is not None and not ctx.dry_run:
        await finish(obj["metadata"]["name"])
    return record


async def admit_new(
    registry: Registry, ctx: RequestContext, obj: Object, *, managed_fields_set: bool = False
) -> tuple[Object, bool]:
    """Default, validate and admit a new object; returns it as it is stored, and whether its name was generated."""
    resource = ctx.resource
    storage = registry.catalog.storage(resource)
    check_scope(ctx, obj)
    if resource.custom is not None and f"{resource.plural}.{resource.group}" in registry.terminating:
        reason = "create not allowed while custom resource definition is terminating"
        raise errors.forbidden(resource.plural, resource.group, obj["metadata"].get("name", ""), reason)
    obj = await ctx.compute(_default_new, ctx, storage, obj, managed_fields_set)
    if await registry.admission.mutate(registry, ctx, "CREATE", obj, None):
        check_scope(ctx, obj)
    is_generated = prepare_metadata(registry, ctx, obj)
    allocator = registry.allocators.get((storage.group, storage.plural))
    if allocator is not None and allocator.before_validation:
        allocator.allocate(registry, obj, None)
    warnings = await ctx.compute(_validate_new, ctx, storage, obj)
    if ctx.authorize_create is not None:  # as upstream: after validation, before validating admission
        ctx.authorize_create()
    for sentence in warnings:
        ctx.warn(sentence)
    if allocator is not None and not allocator.before_validation:
        allocator.allocate(registry, obj, None)
    await registry.admission.validate(registry, ctx, "CREATE", obj, None)
    obj = await ctx.compute(_stored_form, resource, storage, obj)
    if resource.has_conversion_webhook:
        obj = await registry.in_storage_version(resource, obj)
    return obj, is_generated


def _default_new(ctx: RequestContext, storage: Resource, obj: Object, managed_fields_set: bool) -> Object:
    """The object in its stored version, with its defaults and managed fields."""
    for name in DELETION_FIELDS:
        obj["metadata"].pop(name, None)
    drop_duplicate_owners(ctx, obj)
    obj = to_storage(ctx.resource, storage, obj)
    ctx.resource.strategy.default(obj)
    if not managed_fields_set:
        set_managed_fields(ctx, storage, None, obj)
    return obj


def _validate_new(ctx: RequestContext, storage: Resource, obj: Object) -> list[str]:
    """Raise 422 for an invalid object; returns the warnings about a valid one."""
    strategy, metadata = ctx.resource.strategy, obj["metadata"]
    errs = validate_metadata(
        metadata,
        namespaced=ctx.resource.namespaced,
        name_rule=strategy.name_rule,
        built_in=storage.custom is None and strategy.qualified_finalizers,
    )
    if not ctx.trusted:
        errs += strategy.validate(obj)
    if errs:
        raise ctx.invalid(metadata["name"], errs)
    return strategy.warnings(obj)


def _stored_form(resource: Resource, storage: Resource, obj: Object) -> Object:
    prune_to_storage(resource, storage, obj)
    return ordered(storage, obj)


async def store_new(registry: Registry, ctx: RequestContext, obj: Object, *, is_generated: bool) -> Record:
    """Store a new object; a generated name that is taken is replaced by another one."""
    resource, metadata = ctx.resource, obj["metadata"]
    namespace = ctx.namespace if resource.namespaced else ""
    for _ in range(NAME_ATTEMPTS if is_generated else 1):
        key = registry.key(resource, namespace, metadata["name"])
        if ctx.dry_run:
            if registry.store.get(key) is None:
                return dry_run_record(key, obj)
        else:
            try:
                return await registry.store.put(key, Draft(obj), expected=0)
            except RevisionConflict:
                metadata.pop("resourceVersion", None)
        if is_generated:
            taken = metadata["name"]
            metadata["name"] = generate_name(metadata["generateName"], registry.random)
            resource.strategy.rename(obj, taken)
    raise errors.already_exists(resource.plural, resource.group, metadata["name"])


def set_managed_fields(ctx: RequestContext, storage: Resource, before: Object | None, after: Object) -> None:
    """Record in `after` which fields this request set, in the version that the client uses."""
    resource = ctx.resource
    converted = after
    if resource is not storage and resource.custom is None:
        before = before and from_storage(resource, storage, dict(before))
        converted = from_storage(resource, storage, dict(after))
    endpoint, now = endpoint_of(resource, ctx.subresource), to_rfc3339(ctx.now)
    record_update(endpoint, before, converted, manager=ctx.field_manager, now=now)
    # A conversion that moves fields into annotations has copied the metadata.
    managed = converted["metadata"].get("managedFields")
    after["metadata"].pop("managedFields", None)
    if managed is not None:
        after["metadata"]["managedFields"] = managed


def dry_run_record(key: str, obj: Object) -> Record:
    """The record that a write would have stored."""
    return Record(key, 0, orjson.dumps(obj))
