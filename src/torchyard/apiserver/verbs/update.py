"""update: replace an object, or a part of it, if it still is what the client saw.

PUT, every kind of PATCH and every writable subresource end in `change`: they differ only in how the new object is
computed from the old one.
"""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api import field_errors
from torchyard.api.names import validate_metadata_update
from torchyard.api.objects import Object
from torchyard.api.strategy import Strategy
from torchyard.apiserver.registry.conversion import from_storage, keep, to_storage
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.store import RevisionConflict
from torchyard.apiserver.verbs.create import create, record_managed, unsaved
from torchyard.apiserver.verbs.metadata import bump_generation, carry_over, check_scope, ordered

# From the object as the client's version shows it (the compute function's own copy) to the wanted one.
Compute = Callable[[Object], Object]

# A change that names no revision is computed again when somebody else was faster.
ATTEMPTS = 100


async def update(registry: Registry, ctx: RequestContext, obj: Object) -> tuple[Record, bool]:
    """PUT: answers the record and whether it is new."""
    check_scope(ctx, obj)
    strategy = ctx.resource.strategy
    namespace = ctx.namespace if ctx.resource.namespaced else ""
    metadata = obj["metadata"]
    version = str(metadata.get("resourceVersion") or "")
    record = registry.store.get(registry.key(ctx.resource, namespace, ctx.name))
    if record is None and strategy.create_on_update and not ctx.subresource and version in ("", "0"):
        return await create(registry, ctx, obj), True
    if record is None:
        _check_identity(ctx, metadata, "")
        raise ctx.not_found()
    if not version and not strategy.unconditional_update and not ctx.subresource:
        _check_identity(ctx, metadata, record.object()["metadata"]["uid"])
        error = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise ctx.invalid(ctx.name, [error])

    def replaced(shown: Object) -> Object:
        """Deep enough for another attempt: what `change` touches is the top level and the metadata."""
        _check_identity(ctx, metadata, shown["metadata"]["uid"])
        return {**obj, "metadata": dict(metadata)}

    return await change(registry, ctx, replaced, replaces=True), False


def _check_identity(ctx: RequestContext, metadata: Object, present: str) -> None:
    if metadata.get("uid", present) not in ("", present):
        raise ctx.conflict(
            f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {present}"
        )


async def change(
    registry: Registry,
    ctx: RequestContext,
    compute: Compute,
    *,
    recorded: bool = False,
    replaces: bool = False,
    validate: Callable[[Object, Object], list[field_errors.FieldError]] | None = None,
) -> Record:
    """Read, compute, check, write; once more if somebody else wrote meanwhile and the client named no revision.

    `recorded`: the computed object's managed fields are right already. `replaces`: it has no part of the old one in it
    that would be changed in place, so that one reading of that is enough. `validate` replaces the kind's own rules, of
    what may change and what is valid, for subresources that have theirs.
    """
    resource = ctx.resource
    storage = registry.catalog.storage(resource)
    key = registry.key(resource, ctx.namespace if resource.namespaced else "", ctx.name)
    for _ in range(ATTEMPTS):
        record = registry.store.get(key)
        if record is None:
            raise ctx.not_found()
        old = record.object()
        shown = old if replaces and resource is storage else from_storage(resource, storage, record.object())
        if resource.custom is not None and resource is not storage:
            # what the client's version does not have is neither changed nor counted as a change
            old = to_storage(resource, storage, from_storage(resource, storage, old))
        new = compute(shown)
        pinned = str(new.setdefault("metadata", {}).get("resourceVersion") or "0")
        if pinned not in ("0", str(record.rev)):
            raise ctx.conflict()
        check_scope(ctx, new)
        new = to_storage(resource, storage, new)
        new = await _checked(registry, ctx, new, old, recorded=recorded, validate=validate)
        keep(resource, storage, new)
        is_gone = _may_go(new)
        if not is_gone and _unchanged(new, old):
            return record
        new = ordered(storage, new)
        if ctx.dry_run:
            return unsaved(key, new)
        try:
            if is_gone:
                return await registry.store.delete(key, new, expected=record.rev)
            # a settled status came with the call, and all the rest from what was read for it alone
            is_own = ctx.settled is not None and new.get("status") is ctx.settled
            return await registry.store.put(key, new, expected=record.rev, is_own=is_own)
        except RevisionConflict:
            continue
    raise ctx.conflict()


async def _checked(
    registry: Registry,
    ctx: RequestContext,
    new: Object,
    old: Object,
    *,
    recorded: bool,
    validate: Callable[[Object, Object], list[field_errors.FieldError]] | None,
) -> Object:
    storage = registry.catalog.storage(ctx.resource)
    strategy = ctx.resource.strategy
    is_status = ctx.subresource == "status"
    prepare = strategy.prepare_status if is_status else strategy.prepare_update
    carry_over(new, old)
    is_normalized = False
    if is_status and storage.custom is not None:
        is_normalized = ctx.resource is storage and "status" in new and new["status"] is ctx.settled
        new = _with_status_only(None if is_normalized else strategy, new, old)
    else:
        strategy.default(new)
    if not recorded:
        # before the kind's own rules, as upstream: what those take back is owned all the same
        record_managed(ctx, storage, old, new)
    if validate is None:
        prepare(new, old)
    if await registry.admission.mutate(registry, ctx, "UPDATE", new, old):
        is_normalized = False
        carry_over(new, old)
        if validate is None:
            prepare(new, old)
    if not is_status:
        bump_generation(storage, new, old)
    metadata = new["metadata"]
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    allocator = registry.allocators.get((storage.group, storage.plural))
    if allocator is not None and allocator.before_validation and not is_status:
        allocator.allocate(registry, new, old)
    errs: list[field_errors.FieldError] = []
    if not (is_status and storage.custom is not None and validate is None):
        # the status of a custom resource comes with the metadata of before, put back by `prepare`
        errs = validate_metadata_update(
            metadata, old["metadata"], built_in=storage.custom is None and strategy.qualified_finalizers
        )
    if not ctx.trusted:
        if validate is not None:
            errs += validate(new, old)
        elif is_normalized:
            errs += storage.custom.validate_status(new, old, is_normalized=True)
        else:
            errs += (strategy.validate_status if is_status else strategy.validate_update)(new, old)
    if errs:
        raise ctx.invalid(metadata["name"], errs)
    if not is_status and _is_news(strategy, new, old):
        for sentence in strategy.warnings(new):
            ctx.warn(sentence)
    if allocator is not None and not allocator.before_validation:
        allocator.allocate(registry, new, old)
    await registry.admission.validate(registry, ctx, "UPDATE", new, old)
    return new


def _with_status_only(defaults: Strategy | None, new: Object, old: Object) -> Object:
    """What is not its status stays what it was, whatever was sent: so nothing need look at a whole custom resource."""
    kept = {name: part for name, part in old.items() if name not in ("metadata", "status")}
    sent = {"status": new["status"]} if "status" in new else {}
    if defaults is not None:
        defaults.default(sent)
    return {**kept, "metadata": new["metadata"], **({"status": sent["status"]} if "status" in sent else {})}


def _is_news(strategy: Strategy, new: Object, old: Object) -> bool:
    """Whether a change is worth a warning: as upstream, only one of what the user asks for."""
    if not strategy.warns_on_update:
        return False
    is_same = new["metadata"].get("generation") == old["metadata"].get("generation")
    return strategy.generation_fields is None or not is_same


def _may_go(obj: Object) -> bool:
    """An object that waits for its finalizers goes with the last of them."""
    metadata = obj["metadata"]
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not (obj.get("spec") or {}).get("finalizers")  # namespaces keep theirs in the spec
    )


def _unchanged(new: Object, old: Object) -> bool:
    """Whether a write would change nothing: then it is none, whatever time its managed fields carry."""
    if {**new, "metadata": None} != {**old, "metadata": None}:
        return False
    return _same_but_managed_times(new["metadata"], old["metadata"])


def _same_but_managed_times(new: Object, old: Object) -> bool:
    def timeless(metadata: Object) -> Object:
        fields = [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]
        return {**metadata, "managedFields": fields}

    return timeless(new) == timeless(old)
