"""patch: an object changed by a description of the change. `apply` also creates what is not there."""

from __future__ import annotations

import orjson

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.schema import document
from torchyard.api.schema.decode import Undecodable, decode
from torchyard.api.schema.types import Type
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.api import Api
from torchyard.apiserver.call import Call
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.verbs.apply.endpoint import endpoint_of
from torchyard.apiserver.verbs.apply.managed import apply
from torchyard.apiserver.verbs.create import create
from torchyard.apiserver.verbs.patch.content import (
    APPLY,
    MERGE,
    STRATEGIC,
    Patch,
    check_options,
    patch_type,
    read_patch,
)
from torchyard.apiserver.verbs.patch.gotext import type_name
from torchyard.apiserver.verbs.patch.merge import merged
from torchyard.apiserver.verbs.update import change

_ABOUT_STATUS = frozenset({"apiVersion", "kind", "metadata", "status"})
_STATUS_ALONE = frozenset({"status"})
_OF_A_REVISION = frozenset({"metadata", "status"})
_REVISION_ALONE = frozenset({"resourceVersion"})

_NO_KIND = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct "
    r'{ APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)


async def patch(api: Api, call: Call, body: bytes, content_type: str) -> tuple[Record, bool]:
    """Answers the record and whether it is new."""
    read = requested(call, body, content_type)
    if read.type == APPLY:
        return await _apply(api, call, read)
    if _is_about_status(call, read):
        return await change(api, call, lambda obj: _status_patched(call, read, obj), replaces=True), False
    return await change(api, call, lambda obj: patched(call, read, obj)), False


def _is_about_status(call: Call, patch: Patch) -> bool:
    """Whether all that a patch can change in place later is the status: what merging leaves alone stays shared."""
    is_status = call.resource.custom is not None and call.subresource == "status"
    return is_status and patch.type == MERGE and patch.read.keys() <= _ABOUT_STATUS


def _status_patched(call: Call, patch: Patch, obj: Object) -> Object:
    """What most patches of a status leave needs no look beyond the first, and so may share its parts with others."""
    read = patch.read
    if _is_status_alone(read) and not patch.errs:
        status = merged(obj.get("status"), read["status"], has_nulls=patch.has_nulls)
        if call.resource.custom.settles(status):
            call.settled = status
            return {**obj, "metadata": obj["metadata"] | read.get("metadata", {}), "status": status}
    call.settled = None
    return patched(call, patch, _with_own_status(obj))


def _is_status_alone(read: Object) -> bool:
    """Whether a patch says nothing but a status, and perhaps which revision it is meant for."""
    if read.keys() == _STATUS_ALONE:
        return True
    metadata = read.get("metadata")
    return (
        read.keys() == _OF_A_REVISION
        and metadata.__class__ is dict
        and metadata.keys() == _REVISION_ALONE
        and metadata["resourceVersion"].__class__ is str
    )


def _with_own_status(obj: Object) -> Object:
    return {**obj, "status": orjson.loads(orjson.dumps(obj["status"]))} if "status" in obj else obj


def requested(call: Call, body: bytes, content_type: str) -> Patch:
    """The patch of a request, read and checked once however often it is tried."""
    kind = patch_type(content_type, custom=call.resource.custom is not None)
    check_options(kind, call.manager, force=call.force if "force" in call.query else None)
    return read_patch(kind, body, call.validation)


def patched(
    call: Call, patch: Patch, obj: Object, *, gvk: GroupVersionKind | None = None, type: Type | None = None
) -> Object:
    """What a patch makes of an object (of the call's kind, or of `gvk`), read like something that was sent whole."""
    kind = type or call.resource.type
    assert kind is not None, f"no type for {call.resource.gvk}"
    return _read(call, patch, patch.applied_to(obj, kind), gvk or call.resource.gvk, kind, before=obj)


def _read(
    call: Call, patch: Patch, result: Object, gvk: GroupVersionKind, type: Type, *, before: Object | None = None
) -> Object:
    _check_kind(patch, result, gvk)
    if call.resource.custom is not None and not result.get("kind"):
        raise patch.refusal(result, f"Object 'Kind' is missing in '{orjson.dumps(result).decode()}'")
    try:
        if call.resource.custom is not None and gvk == call.resource.gvk:
            result, unknown = _pruned(call, result, before or {})
            found = [f'unknown field "{path}"' for path in unknown]
        else:
            result, found = decode(result, type)
    except Undecodable as error:
        raise patch.refusal(result, error.unconverted if patch.type == STRATEGIC else error.message) from None
    except StatusError as error:
        # metadata of a custom resource that is none: a patch is told the reason, without the words around it
        raise patch.refusal(
            result, error.message.partition(f" handled as a {gvk.kind}: ")[2] or error.message
        ) from None
    errs = [*patch.errs, *found] if call.validation != "Ignore" else []
    if errs and call.validation == "Strict":
        raise patch.refusal(result, document.strict_error(errs))
    for sentence in errs:
        call.warn(sentence)
    return result


def _pruned(call: Call, result: Object, before: Object) -> tuple[Object, list[str]]:
    """What the schema does not name is dropped; a change of status need look only at what it touches."""
    custom = call.resource.custom
    assert custom is not None
    kept: Object = {}
    if call.subresource == "status":
        kept = {name: part for name, part in before.items() if name != "status" and result.get(name) is part}
        if "metadata" in kept:
            kept["metadata"] = dict(kept["metadata"])  # which the verbs write into
    part = {name: value for name, value in result.items() if name not in kept}
    unknown = custom.prune(part)
    return {**kept, **part}, unknown


def _check_kind(patch: Patch, result: Object, gvk: GroupVersionKind) -> None:
    """A patch may not make something else of an object. A strategic one works on the type, which has no say in it."""
    if patch.type == STRATEGIC:
        for name in ("apiVersion", "kind"):
            if not isinstance(result.get(name), str | None):
                raise patch.refusal(result, f"cannot convert {type_name(result[name])} to string")
        result["apiVersion"], result["kind"] = gvk.api_version, gvk.kind
    elif not isinstance(result, dict):  # a JSON patch may replace the whole document
        raise patch.refusal(result, _NO_KIND)
    elif reason := document.wrong_kind(result, gvk):
        raise patch.refusal(result, reason)


async def _apply(api: Api, call: Call, patch: Patch) -> tuple[Record, bool]:
    namespace = call.namespace if call.resource.namespaced else ""
    while True:
        if call.subresource or api.store.get(api.key(call.resource, namespace, call.name)) is not None:
            return await change(api, call, lambda live: applied(call, patch, live), recorded=True), False
        try:
            return await create(api, call, applied(call, patch, None), recorded=True), True
        except StatusError as error:
            if error.reason != "AlreadyExists":  # somebody else was faster: apply on what they made
                raise


def applied(call: Call, patch: Patch, live: Object | None, config: Object | None = None) -> Object:
    """What a server-side apply makes of the object, or of nothing, managed fields included.

    `config` is what to apply where that is not what the patch says itself.
    """
    kind = call.resource.type
    assert kind is not None, f"no type for {call.resource.gvk}"
    endpoint, now = endpoint_of(call.resource, call.subresource), to_rfc3339(call.now)
    made = apply(endpoint, live, config or patch.document, manager=call.manager, now=now, force=call.force)
    return _read(call, patch, made, call.resource.gvk, kind)
