"""patch: change an object by one of the four patch formats. Apply also creates an object that does not exist."""

from __future__ import annotations

import orjson

from torchyard.api.errors import StatusError
from torchyard.api.go_format import format_type
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.schema import document
from torchyard.api.schema.decode import DecodeError, decode
from torchyard.api.schema.types import Type
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.apply.endpoint import endpoint_of
from torchyard.apiserver.apply.managed_fields import apply
from torchyard.apiserver.patch.merge_patch import apply_merge_patch
from torchyard.apiserver.patch.parse import (
    APPLY,
    MERGE,
    STRATEGIC,
    Patch,
    check_options,
    patch_type,
    read_patch,
)
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.verbs.create import create
from torchyard.apiserver.verbs.update import change, change_draft

_STATUS_PATCH_FIELDS = frozenset({"apiVersion", "kind", "metadata", "status"})
_STATUS_ONLY = frozenset({"status"})
_METADATA_AND_STATUS = frozenset({"metadata", "status"})
_RESOURCE_VERSION_ONLY = frozenset({"resourceVersion"})

_NO_KIND = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct "
    r'{ APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)


async def patch(registry: Registry, ctx: RequestContext, body: bytes, content_type: str) -> tuple[Record, bool]:
    """Returns the record and whether it is new."""
    document = await ctx.compute(read_request_patch, ctx, body, content_type)
    if document.type == APPLY:
        return await _apply(registry, ctx, document)
    if _is_status_patch(ctx, document):
        compute = _patched_status if ctx.resource.custom is not None else _patched_built_in_status
        return await change_draft(registry, ctx, lambda obj: compute(ctx, document, obj), replaces=True), False
    return await change(registry, ctx, lambda obj: patched(ctx, document, obj)), False


def _is_status_patch(ctx: RequestContext, patch: Patch) -> bool:
    """Whether a patch affects only the status, of a kind for which the rest of the object can be shared."""
    if ctx.subresource != "status" or patch.type not in (MERGE, STRATEGIC):
        return False
    is_separate = patch.type == MERGE if ctx.resource.custom is not None else ctx.resource.strategy.status_is_separate
    return is_separate and patch.content.keys() <= _STATUS_PATCH_FIELDS


def _patched_built_in_status(ctx: RequestContext, patch: Patch, obj: Object) -> Draft:
    """Only metadata and status are patched and decoded; the new object shares the other parts with the stored one."""
    affected = {name: part for name, part in obj.items() if name in _STATUS_PATCH_FIELDS}
    try:
        result = patched(ctx, patch, _copy(affected))
    except StatusError:  # its message has the whole object
        return Draft(patched(ctx, patch, _copy(obj)))
    shared = {name: part for name, part in obj.items() if name not in _STATUS_PATCH_FIELDS}
    order = {**obj, **result}  # the stored bytes keep their order
    new = {**result, **shared}
    return Draft({name: new[name] for name in order if name in new})


def _copy(obj: Object) -> Object:
    copied: Object = orjson.loads(orjson.dumps(obj))
    return copied


def _patched_status(ctx: RequestContext, patch: Patch, obj: Object) -> Draft:
    """Most patched statuses are normalized, and then no later step modifies them: they may share parts with `patch`."""
    content = patch.content
    if _has_status_only(content) and not patch.strict_errors:
        status = apply_merge_patch(obj.get("status"), content["status"], has_nulls=patch.has_nulls)
        if ctx.resource.custom.is_normalized_status(status):
            metadata = obj["metadata"] | content.get("metadata", {})
            return Draft({**obj, "metadata": metadata, "status": status}, status_normalized=True)
    return Draft(patched(ctx, patch, _with_own_status(obj)))


def _has_status_only(content: Object) -> bool:
    """Whether a patch has nothing but a status, and perhaps the revision that it is for."""
    if content.keys() == _STATUS_ONLY:
        return True
    metadata = content.get("metadata")
    return (
        content.keys() == _METADATA_AND_STATUS
        and metadata.__class__ is dict
        and metadata.keys() == _RESOURCE_VERSION_ONLY
        and metadata["resourceVersion"].__class__ is str
    )


def _with_own_status(obj: Object) -> Object:
    return {**obj, "status": orjson.loads(orjson.dumps(obj["status"]))} if "status" in obj else obj


def read_request_patch(ctx: RequestContext, body: bytes, content_type: str) -> Patch:
    """The patch of a request, decoded and checked once for all attempts."""
    kind = patch_type(content_type, custom=ctx.resource.custom is not None)
    check_options(kind, ctx.manager, force=ctx.force if "force" in ctx.query else None)
    return read_patch(kind, body, ctx.validation)


def patched(
    ctx: RequestContext, patch: Patch, obj: Object, *, gvk: GroupVersionKind | None = None, type: Type | None = None
) -> Object:
    """The patched object (of the request's kind, or of `gvk`), decoded like an object that was sent whole."""
    kind = type or ctx.resource.type
    assert kind is not None, f"no type for {ctx.resource.gvk}"
    return _read(ctx, patch, patch.apply_to(obj, kind), gvk or ctx.resource.gvk, kind, before=obj)


def _read(
    ctx: RequestContext,
    patch: Patch,
    result: Object,
    gvk: GroupVersionKind,
    type: Type,
    *,
    before: Object | None = None,
) -> Object:
    _check_kind(patch, result, gvk)
    if ctx.resource.custom is not None and not result.get("kind"):
        raise patch.invalid_error(result, f"Object 'Kind' is missing in '{orjson.dumps(result).decode()}'")
    try:
        if ctx.resource.custom is not None and gvk == ctx.resource.gvk:
            result, unknown = _pruned(ctx, result, before or {})
            warnings = [f'unknown field "{path}"' for path in unknown]
        else:
            result, warnings = decode(result, type)
    except DecodeError as error:
        raise patch.invalid_error(result, error.unconverted if patch.type == STRATEGIC else error.message) from None
    except StatusError as error:
        # invalid metadata of a custom resource: as upstream, a patch reports only the reason
        raise patch.invalid_error(
            result, error.message.partition(f" handled as a {gvk.kind}: ")[2] or error.message
        ) from None
    errs = [*patch.strict_errors, *warnings] if ctx.validation != "Ignore" else []
    if errs and ctx.validation == "Strict":
        raise patch.invalid_error(result, document.strict_error(errs))
    for sentence in errs:
        ctx.warn(sentence)
    return result


def _pruned(ctx: RequestContext, result: Object, before: Object) -> tuple[Object, list[str]]:
    """Drop the fields that the schema does not specify; of a status change, only what it touches is pruned."""
    custom = ctx.resource.custom
    assert custom is not None
    unchanged: Object = {}
    if ctx.subresource == "status":
        unchanged = {name: part for name, part in before.items() if name != "status" and result.get(name) is part}
        if "metadata" in unchanged:
            unchanged["metadata"] = dict(unchanged["metadata"])  # the verbs modify it
    changed = {name: value for name, value in result.items() if name not in unchanged}
    unknown = custom.prune(changed)
    return {**unchanged, **changed}, unknown


def _check_kind(patch: Patch, result: Object, gvk: GroupVersionKind) -> None:
    """A patch must not change the kind. A strategic patch works on the Go type, which ignores both fields."""
    if patch.type == STRATEGIC:
        for name in ("apiVersion", "kind"):
            if not isinstance(result.get(name), str | None):
                raise patch.invalid_error(result, f"cannot convert {format_type(result[name])} to string")
        result["apiVersion"], result["kind"] = gvk.api_version, gvk.kind
    elif not isinstance(result, dict):  # a JSON patch may replace the whole document
        raise patch.invalid_error(result, _NO_KIND)
    elif reason := document.wrong_kind(result, gvk):
        raise patch.invalid_error(result, reason)


_NO_OBJECT_WITH_UID = "uid mismatch: the provided object specified uid {}, and no existing object was found"


async def _apply(registry: Registry, ctx: RequestContext, patch: Patch) -> tuple[Record, bool]:
    namespace = ctx.namespace if ctx.resource.namespaced else ""
    while True:
        if ctx.subresource or registry.store.get(registry.key(ctx.resource, namespace, ctx.name)) is not None:
            return await change(registry, ctx, lambda live: applied(ctx, patch, live), managed_fields_set=True), False
        try:
            obj = await ctx.compute(applied, ctx, patch, None)
            if uid := obj["metadata"].get("uid"):
                raise ctx.conflict(_NO_OBJECT_WITH_UID.format(uid))
            return await create(registry, ctx, obj, managed_fields_set=True), True
        except StatusError as error:
            if error.reason != "AlreadyExists":  # created meanwhile: apply to that object
                raise


def applied(ctx: RequestContext, patch: Patch, live: Object | None, config: Object | None = None) -> Object:
    """The result of a server-side apply to `live`, or to nothing, managed fields included.

    `config` is the applied configuration where it is not the patch itself.
    """
    kind = ctx.resource.type
    assert kind is not None, f"no type for {ctx.resource.gvk}"
    endpoint, now = endpoint_of(ctx.resource, ctx.subresource), to_rfc3339(ctx.now)
    result = apply(endpoint, live, config or patch.document, manager=ctx.manager, now=now, force=ctx.force)
    return _read(ctx, patch, result, ctx.resource.gvk, kind)
