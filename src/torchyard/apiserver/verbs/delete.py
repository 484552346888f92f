"""delete: set the deletion timestamp, wait for finalizers and the grace period, remove.

The garbage collector, the node or the user removes the finalizers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from torchyard.api import errors, field_errors
from torchyard.api.objects import Object
from torchyard.api.times import LATEST, shift, to_rfc3339
from torchyard.apiserver.registry.conversion import from_storage
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Query
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.errors import RevisionConflict
from torchyard.apiserver.verbs.create import dry_run_record
from torchyard.apiserver.verbs.metadata import ordered

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_POLICIES = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace: int | None = None
    policy: str = ""
    orphan_dependents: bool | None = None
    uid: str = ""
    revision: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Deleted:
    """The outcome: the object is `gone`, or it still exists with a deletion timestamp."""

    record: Record
    gone: bool


def read_delete_options(body: Object | None, query: Query) -> DeleteOptions:
    """The options of a DELETE, from its body or from the query, where Python clients put them."""
    body = body or {}
    kind = body.get("kind", "DeleteOptions")
    if kind != "DeleteOptions":
        raise errors.bad_request(f'the body of a DELETE must be a DeleteOptions object, not a "{kind}"')
    preconditions = body.get("preconditions") or {}
    grace = _grace(body, query)
    orphan = body.get("orphanDependents")
    if orphan is None and "orphanDependents" in query:
        orphan = query.flag("orphanDependents")
    policy = body.get("propagationPolicy") or query.get("propagationPolicy")
    dry_run = body.get("dryRun") or query.all("dryRun")
    errs: list[field_errors.FieldError] = []
    if policy and orphan is not None:
        errs.append(
            field_errors.invalid(
                "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
            )
        )
    if policy and policy not in _POLICIES:
        errs.append(
            field_errors.not_supported("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"])
        )
    if any(value != "All" for value in dry_run):
        errs.append(field_errors.not_supported("dryRun", dry_run, ["All"]))
    if errs:
        raise errors.invalid("DeleteOptions", "meta.k8s.io", "", errs)
    return DeleteOptions(
        grace=grace,
        policy=policy,
        orphan_dependents=orphan,
        uid=preconditions.get("uid") or "",
        revision=preconditions.get("resourceVersion") or "",
        dry_run=bool(dry_run),
    )


def _grace(body: Object, query: Query) -> int | None:
    seconds = body.get("gracePeriodSeconds")
    if seconds is None:
        return query.number("gracePeriodSeconds") if query.get("gracePeriodSeconds") else None
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not -(2**63) <= seconds < 2**63:
        raise errors.bad_request(f"gracePeriodSeconds must be a whole number, not {field_errors.format_value(seconds)}")
    return seconds


async def delete(registry: Registry, ctx: RequestContext, options: DeleteOptions) -> Deleted:
    """Delete the requested object, or start its deletion."""
    ctx.dry_run = ctx.dry_run or options.dry_run
    key = registry.key(ctx.resource, ctx.namespace if ctx.resource.namespaced else "", ctx.name)
    while True:
        record = registry.store.get(key)
        if record is None:
            raise ctx.not_found()
        is_converted = ctx.resource.has_conversion_webhook
        view = await registry.in_version(ctx.resource, record) if is_converted else record
        storage = registry.catalog.storage(ctx.resource)
        old = from_storage(storage, storage, view.object())
        check_preconditions(ctx, old, options)
        await registry.admission.validate(registry, ctx, "DELETE", None, old)
        new = from_storage(storage, storage, view.object())
        if storage.custom is not None and record.rev < registry.catalog.schema_revision(storage):
            storage.custom.default(new)  # readers find no more that the object is older than its schema
        outcome = _mark_deleted(ctx, new, options)
        new = ordered(storage, new)
        if outcome == "unchanged":
            return Deleted(record, gone=False)
        if is_converted:
            new = await registry.in_storage_version(ctx.resource, new)
        if ctx.dry_run:
            return Deleted(dry_run_record(key, new), gone=outcome == "gone")
        try:
            if outcome == "gone":
                return Deleted(await registry.store.delete(key, Draft(new), expected=record.rev), gone=True)
            return Deleted(await registry.store.put(key, Draft(new), expected=record.rev), gone=False)
        except RevisionConflict:
            if options.revision:
                raise ctx.conflict() from None


def check_preconditions(ctx: RequestContext, old: Object, options: DeleteOptions) -> None:
    """Raise 409 for another object than the client means. As in upstream, the message has the kind."""
    metadata, resource = old["metadata"], ctx.resource
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']})."
            " The object might have been deleted and then recreated"
        )
        raise errors.conflict(resource.kind, resource.group, ctx.name, why)
    if options.revision and options.revision != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.revision}) does not match the ResourceVersion in record"
            f" ({metadata['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(resource.kind, resource.group, ctx.name, why)


def _mark_deleted(ctx: RequestContext, obj: Object, options: DeleteOptions) -> Literal["gone", "pending", "unchanged"]:
    """Change the object as a DELETE does; `pending` if a finalizer or the grace period delays its removal."""
    strategy = ctx.resource.strategy
    metadata = obj["metadata"]
    before = (metadata.get("deletionTimestamp"), list(metadata.get("finalizers") or ()))
    if not metadata.get("deletionTimestamp"):
        strategy.on_delete(obj, ctx.now)
    finalizers = _finalizers(metadata.get("finalizers") or [], options, strategy.default_propagation)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = _grace_period(obj, options) if strategy.graceful else 0
    if metadata.get("deletionTimestamp"):
        if not _shorten(metadata, grace, ctx.now, is_explicit=options.grace is not None) and grace:
            grace = int(metadata.get("deletionGracePeriodSeconds") or 0)
    elif grace or finalizers or strategy.graceful or _has_spec_finalizers(obj):
        metadata["deletionTimestamp"] = to_rfc3339(shift(ctx.now, grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
    if not finalizers and not grace and not _has_spec_finalizers(obj):
        return "gone"
    after = (metadata.get("deletionTimestamp"), list(metadata.get("finalizers") or ()))
    return "unchanged" if before == after else "pending"


def _has_spec_finalizers(obj: Object) -> bool:
    return bool(obj.get("kind") == "Namespace" and (obj.get("spec") or {}).get("finalizers"))


def _grace_period(obj: Object, options: DeleteOptions) -> int:
    """The grace period of a pod; 0 if it does not run (upstream's podStrategy.CheckGracefulDelete)."""
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    seconds = options.grace if options.grace is not None else spec.get("terminationGracePeriodSeconds", 30)
    return 1 if seconds < 0 else int(seconds)


def _shorten(metadata: Object, grace: int, now: datetime, *, is_explicit: bool) -> bool:
    """A second DELETE may only shorten the grace period."""
    current = metadata.get("deletionGracePeriodSeconds") or 0
    if not is_explicit and grace:
        return False
    if grace >= current:
        return False
    end = datetime.fromisoformat(metadata["deletionTimestamp"])
    begun = now if end == LATEST else shift(end, -current)
    metadata["deletionTimestamp"] = to_rfc3339(shift(begun, grace))
    metadata["deletionGracePeriodSeconds"] = grace
    return True


def _finalizers(present: list[str], options: DeleteOptions, default: str) -> list[str]:
    """The finalizers that follow from the propagation policy, by the rules of upstream's BeforeDelete."""
    orphan, foreground = ORPHAN in present, FOREGROUND in present
    if options.orphan_dependents is not None:
        orphan, foreground = options.orphan_dependents, False
    elif options.policy:
        orphan, foreground = options.policy == "Orphan", options.policy == "Foreground"
    elif not orphan and not foreground:
        orphan = default == "Orphan"
    finalizers = [finalizer for finalizer in present if finalizer not in (ORPHAN, FOREGROUND)]
    if orphan:
        finalizers.append(ORPHAN)
    if foreground:
        finalizers.append(FOREGROUND)
    return finalizers
