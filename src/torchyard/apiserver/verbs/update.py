"""update: replace an object, or a part of it, if it is still at the revision that the client saw.

PUT, every kind of PATCH and every writable subresource end in `change_draft`. They differ only in how they compute the
new object from the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import orjson

from torchyard.api import errors, field_errors
from torchyard.api.names import validate_metadata_update
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.strategy import Strategy
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.registry.conversion import from_storage, prune_to_storage, to_storage
from torchyard.apiserver.registry.registry import Registry, ResourceKey
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.errors import RevisionConflict
from torchyard.apiserver.verbs.create import create, dry_run_record, set_managed_fields
from torchyard.apiserver.verbs.metadata import (
    bump_generation,
    carry_over,
    check_scope,
    drop_duplicate_owners,
    ordered,
)

# From the stored object in the client's version, which the function owns, to the new one.
Compute = Callable[[Object], Object]
ComputeDraft = Callable[[Object], Draft]
ValidateUpdate = Callable[[Object, Object], list[field_errors.FieldError]]

# A change that names no revision is computed again after a conflict, at most so often.
ATTEMPTS = 100


async def update(registry: Registry, ctx: RequestContext, draft: Draft) -> tuple[Record, bool]:
    """PUT: returns the record and whether it is new."""
    obj = draft.obj
    check_scope(ctx, obj)
    strategy = ctx.resource.strategy
    namespace = ctx.namespace if ctx.resource.namespaced else ""
    metadata = obj["metadata"]
    version = str(metadata.get("resourceVersion") or "")
    record = registry.store.get(registry.key(ctx.resource, namespace, ctx.name))
    if record is None and strategy.create_on_update and not ctx.subresource and version in ("", "0"):
        return await create(registry, ctx, obj), True
    if record is None:
        check_uid(ctx, metadata, "")
        raise ctx.not_found()
    if version in ("", "0") and not strategy.unconditional_update:
        check_uid(ctx, metadata, record.object()["metadata"]["uid"])
        error = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        # As upstream, which names the resource here and not the kind.
        raise errors.invalid(ctx.resource.plural, ctx.resource.group, ctx.name, [error])

    def replace(current: Object) -> Draft:
        """Copied deep enough for another attempt: `change_draft` modifies only the top level and the metadata."""
        check_uid(ctx, metadata, current["metadata"]["uid"])
        return Draft({**obj, "metadata": dict(metadata)}, status_normalized=draft.status_normalized)

    return await change_draft(registry, ctx, replace, replaces=True), False


def check_uid(ctx: RequestContext, metadata: Object, current: str) -> None:
    """A uid in the submitted object is a precondition."""
    if metadata.get("uid", current) not in ("", current):
        raise ctx.conflict(
            f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {current}"
        )


async def change(
    registry: Registry,
    ctx: RequestContext,
    compute: Compute,
    *,
    managed_fields_set: bool = False,
    validate: ValidateUpdate | None = None,
) -> Record:
    """`change_draft` for a function that returns a plain object."""
    return await change_draft(
        registry, ctx, lambda obj: Draft(compute(obj)), managed_fields_set=managed_fields_set, validate=validate
    )


async def change_status(registry: Registry, user: User, kind: ResourceKey, name: str, compute: Compute) -> Record:
    """Change the status of a cluster-scoped object, as a controller inside of kube-apiserver."""
    resource = registry.catalog.find(kind[0], "v1", kind[1])
    assert resource is not None
    now = registry.clock()
    ctx = RequestContext(resource, "update", "", name, user, now, subresource="status", manager="kube-apiserver")
    return await change(registry, ctx, compute)


async def change_draft(
    registry: Registry,
    ctx: RequestContext,
    compute: ComputeDraft,
    *,
    managed_fields_set: bool = False,
    replaces: bool = False,
    validate: ValidateUpdate | None = None,
) -> Record:
    """Read, compute, check, write; again after a conflict if the client named no revision.

    `managed_fields_set`: the computed object's managed fields are complete already. `replaces`: the computed object
    contains no part of the old one that is modified in place, so that the record is decoded only once. `validate`
    replaces the kind's own validation for subresources that have their own.
    """
    resource = ctx.resource
    storage = registry.catalog.storage(resource)
    key = registry.key(resource, ctx.namespace if resource.namespaced else "", ctx.name)
    for _ in range(ATTEMPTS):
        record = registry.store.get(key)
        if record is None:
            raise ctx.not_found()
        ctx.size = max(ctx.size, len(record.data))
        view = await registry.in_version(resource, record) if resource.has_conversion_webhook else record
        old, draft = await ctx.compute(_compute_draft, ctx, storage, view, compute, replaces)
        await _admit_change(registry, ctx, draft, old, managed_fields_set=managed_fields_set, validate=validate)
        new = draft.obj
        is_gone = _is_removable(new)
        must_write = is_gone or _is_in_older_version(resource, storage, record)
        if not await ctx.compute(_finish_change, ctx, storage, draft, old, must_write):
            return record
        if resource.has_conversion_webhook:
            draft = Draft(await registry.in_storage_version(resource, draft.obj))
        if ctx.dry_run:
            return dry_run_record(key, draft.obj)
        try:
            if is_gone:
                return await registry.store.delete(key, draft, expected=record.rev)
            return await registry.store.put(key, draft, expected=record.rev)
        except RevisionConflict:
            continue
    raise ctx.conflict()


def _compute_draft(
    ctx: RequestContext, storage: Resource, record: Record, compute: ComputeDraft, replaces: bool
) -> tuple[Object, Draft]:
    """The old object and the new one, in their stored version."""
    resource = ctx.resource
    old = record.object()
    if resource.custom is not None:
        # fields that the client's version does not have are neither changed nor counted as a change
        old = to_storage(resource, storage, from_storage(resource, storage, old))
    current = old if replaces and resource is storage else from_storage(resource, storage, record.object())
    draft = compute(current)
    version = str(draft.obj.setdefault("metadata", {}).get("resourceVersion") or "0")
    if version not in ("0", str(record.rev)):
        raise ctx.conflict()
    check_scope(ctx, draft.obj)
    drop_duplicate_owners(ctx, draft.obj)
    if resource is not storage:
        draft = Draft(to_storage(resource, storage, draft.obj))
    return old, draft


def _finish_change(ctx: RequestContext, storage: Resource, draft: Draft, old: Object, must_write: bool) -> bool:
    """Bring an admitted change into its stored form; returns whether it is to be written."""
    prune_to_storage(ctx.resource, storage, draft.obj)
    if not must_write and _is_unchanged(draft.obj, old):
        return False
    draft.obj = ordered(storage, draft.obj)
    return True


async def _admit_change(
    registry: Registry,
    ctx: RequestContext,
    draft: Draft,
    old: Object,
    *,
    managed_fields_set: bool,
    validate: ValidateUpdate | None,
) -> None:
    """Default, validate and admit a change, in place."""
    storage = registry.catalog.storage(ctx.resource)
    strategy = ctx.resource.strategy
    is_status = ctx.subresource == "status"
    prepare = partial(_prepare_status, ctx) if is_status else strategy.prepare_update
    set_fields = partial(
        _default_change, managed_fields_set=managed_fields_set, prepare=prepare if validate is None else None
    )
    await ctx.compute(set_fields, ctx, storage, draft, old)
    new = draft.obj
    if await registry.admission.mutate(registry, ctx, "UPDATE", new, old):
        draft.status_normalized = False
        check_scope(ctx, new)
        carry_over(new, old)
        if validate is None:
            prepare(new, old)
    if not is_status and ctx.subresource != "binding":  # as upstream, where a binding bypasses the strategy
        bump_generation(storage, new, old)
    metadata = new["metadata"]
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    allocator = registry.allocators.get((storage.group, storage.plural))
    if allocator is not None and allocator.before_validation and not is_status:
        allocator.allocate(registry, new, old)
    for sentence in await ctx.compute(_validate_change, ctx, storage, draft, old, validate):
        ctx.warn(sentence)
    if allocator is not None and not allocator.before_validation:
        allocator.allocate(registry, new, old)
    await registry.admission.validate(registry, ctx, "UPDATE", new, old)


def _prepare_status(ctx: RequestContext, new: Object, old: Object) -> None:
    strategy = ctx.resource.strategy
    strategy.prepare_status(new, old)
    strategy.stamp_status(new, old, ctx.now)


def _default_change(
    ctx: RequestContext,
    storage: Resource,
    draft: Draft,
    old: Object,
    *,
    managed_fields_set: bool,
    prepare: Callable[[Object, Object], None] | None,
) -> None:
    """Set what the client left out, the managed fields, and with `prepare` what the kind resets."""
    strategy = ctx.resource.strategy
    carry_over(draft.obj, old)
    if ctx.subresource == "status" and storage.custom is not None:
        draft.obj = _with_status_only(None if draft.status_normalized else strategy, draft.obj, old)
    elif not (strategy.status_is_separate and draft.obj.get("spec") is old.get("spec")):
        strategy.default(draft.obj)
    if not managed_fields_set:
        # before the kind's own rules, as upstream: a field that those reset has an owner all the same
        set_managed_fields(ctx, storage, old, draft.obj)
    if prepare is not None:
        prepare(draft.obj, old)


def _validate_change(
    ctx: RequestContext, storage: Resource, draft: Draft, old: Object, validate: ValidateUpdate | None
) -> list[str]:
    """Raise 422 for an invalid change; returns the warnings about a valid one."""
    strategy, new = ctx.resource.strategy, draft.obj
    is_status = ctx.subresource == "status"
    metadata = new["metadata"]
    errs: list[field_errors.FieldError] = []
    if not (is_status and storage.custom is not None and validate is None):
        # a status change of a custom resource has its old metadata, restored by `prepare`
        validates_prefix = strategy.validates_prefix_on_update and not is_status and validate is None
        errs = validate_metadata_update(
            metadata,
            old["metadata"],
            built_in=storage.custom is None and strategy.qualified_finalizers,
            name_rule=strategy.name_rule if validates_prefix else "path-segment",
        )
    if not ctx.trusted:
        if validate is not None:
            errs += validate(new, old)
        elif draft.status_normalized:
            errs += strategy.validate_normalized_status(new, old)
        else:
            errs += (strategy.validate_status if is_status else strategy.validate_update)(new, old)
    if errs:
        raise ctx.invalid(metadata["name"], errs)
    return strategy.warnings(new) if not is_status and _warns(strategy, new, old) else []


def _with_status_only(defaults: Strategy | None, new: Object, old: Object) -> Object:
    """The old object with the new status and metadata, so that later steps need not walk a whole custom resource."""
    unchanged = {name: part for name, part in old.items() if name not in ("metadata", "status")}
    status = {"status": new["status"]} if "status" in new else {}
    if defaults is not None:
        defaults.default(status)
    return {**unchanged, "metadata": new["metadata"], **({"status": status["status"]} if "status" in status else {})}


def _warns(strategy: Strategy, new: Object, old: Object) -> bool:
    """Whether the kind's warnings are repeated: as upstream, only for a change of the desired state."""
    if not strategy.warns_on_update:
        return False
    is_same = new["metadata"].get("generation") == old["metadata"].get("generation")
    return strategy.generation_fields is None or not is_same


def _is_removable(obj: Object) -> bool:
    """An object that is being deleted is removed with its last finalizer."""
    metadata = obj["metadata"]
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not (obj.get("spec") or {}).get("finalizers")  # namespaces keep theirs in the spec
    )


def _is_in_older_version(resource: Resource, storage: Resource, record: Record) -> bool:
    """Whether an unchanged object is written all the same: this is how clients migrate the objects of a CRD."""
    if resource.custom is None:
        return False
    version = resource.storage_version if resource.has_conversion_webhook else storage.version
    stored = f"{resource.group}/{version}"
    # almost always its bytes say so: see `ordered`; what a webhook converted has an order of its own
    start = orjson.dumps({"kind": resource.kind, "apiVersion": stored})[:-1]
    return not record.data.startswith(start) and bool(record.object()["apiVersion"] != stored)


def _is_unchanged(new: Object, old: Object) -> bool:
    """Whether a write would change nothing but times in the managed fields; it is skipped then."""
    if {**new, "metadata": None} != {**old, "metadata": None}:
        return False
    return _same_but_managed_times(new["metadata"], old["metadata"])


def _same_but_managed_times(new: Object, old: Object) -> bool:
    def timeless(metadata: Object) -> Object:
        fields = [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]
        return {**metadata, "managedFields": fields}

    return timeless(new) == timeless(old)
