"""Managed fields of create, update, patch and apply: the two functions the verbs call.

`record_update` notes who set what once the object is computed; `apply` computes the object as well. Both look at the
object as its defaults leave it, before admission changes it: as upstream has it, what admission sets belongs to nobody.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torchyard.api.errors import bad_request
from torchyard.api.objects import Object
from torchyard.apiserver.apply import last_applied, managers
from torchyard.apiserver.apply.compare import Comparison, compare
from torchyard.apiserver.apply.conflicts import conflict_error, list_conflicts
from torchyard.apiserver.apply.endpoint import Endpoint
from torchyard.apiserver.apply.fieldset import (
    SELF,
    FieldSet,
    difference,
    difference_below,
    intersection,
    of_paths,
    union,
)
from torchyard.apiserver.apply.managers import ManagedFields, Manager, VersionedSet, applier, cap_updaters, updater
from torchyard.apiserver.apply.merge import merge_applied
from torchyard.apiserver.apply.path_elements import UnkeyedItemError
from torchyard.apiserver.apply.prune import prune_unapplied
from torchyard.apiserver.apply.to_fieldset import applied_fields, set_fields
from torchyard.apiserver.apply.validate import schema_mismatch
from torchyard.apiserver.apply.values import empty_object
from torchyard.apiserver.patch.patch_errors import invalid_patch, too_deep

BEFORE_FIRST_APPLY = "before-first-apply"
# What the server keeps itself belongs to nobody.
_KEPT_BY_SERVER = "name namespace creationTimestamp selfLink uid clusterName generation managedFields resourceVersion"
_KEPT_IN_METADATA = frozenset(_KEPT_BY_SERVER.split())
_STRIPPED = of_paths(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(("f:metadata", f"f:{name}") for name in _KEPT_IN_METADATA),
)


def record_update(endpoint: Endpoint, live: Object | None, new: Object, *, manager: str, now: str) -> None:
    """Set `metadata.managedFields` of `new` after a create (`live` is None), update or patch; nothing else changes."""
    sent = new["metadata"].pop("managedFields", None)
    try:
        if live is None:
            known = _created(endpoint, new, manager, now)
        else:
            before = dict(live["metadata"])
            known = _known(before.pop("managedFields", None), sent, endpoint.subresource)
            # A record that was wiped, or never was: upstream does not begin one before the first apply.
            if known:
                live_before = {**live, "metadata": before}
                known = cap_updaters(_updated(endpoint, live_before, new, known, manager=manager, now=now))
    except UnkeyedItemError:
        # As upstream: an object with lists whose items cannot be told apart keeps the record it had.
        known = _known(live["metadata"].get("managedFields"), None, "") if live is not None else {}
    except RecursionError:
        raise too_deep() from None
    if known:
        new["metadata"]["managedFields"] = managers.encode_managed_fields(known)


def apply(
    endpoint: Endpoint, live: Object | None, applied: Object, *, manager: str, now: str, force: bool = False
) -> Object:
    """The object after a server-side apply (which creates it if `live` is None), managed fields included.

    409 with a cause for each field that would change and that others own, unless `force`. The result is yet to be
    decoded and defaulted. Equal to `live`, it need not be written.
    """
    try:
        return _checked_and_applied(endpoint, live, applied, _ApplyOptions(manager, now, force=force))
    except RecursionError:
        raise too_deep() from None


def _checked_and_applied(endpoint: Endpoint, live: Object | None, applied: Object, by: _ApplyOptions) -> Object:
    check_applied(endpoint, applied)
    base = live if live is not None else empty_object(endpoint.type)
    known = managers.decode_managed_fields((base.get("metadata") or {}).get("managedFields"), trusted=True) or {}
    try:
        if live is not None and not known:
            known = _created(endpoint, live, BEFORE_FIRST_APPLY, by.now)
        result, known = _applied(endpoint, base, applied, known, by)
    except UnkeyedItemError as error:
        raise invalid_patch(f"failed to create typed live object ({_named(applied)}): {error}") from None
    metadata = {key: value for key, value in result["metadata"].items() if key != "managedFields"}
    if known:
        metadata["managedFields"] = managers.encode_managed_fields(known)
    result = {**result, "metadata": metadata}
    if by.manager == last_applied.KUBECTL:
        last_applied.refresh(result, applied)
    return result


class _ApplyOptions(NamedTuple):
    """Who writes, when, and whether over others."""

    manager: str
    now: str
    force: bool = False


def _known(before: Any, sent: Any, subresource: str) -> ManagedFields:
    """The record to start from: the one a client sent, if it may send one, or else the live object's."""
    if not subresource and sent is not None and sent != before:
        if sent in ([], [{}]):
            # How a client wipes the record.
            return {}
        known = managers.decode_managed_fields(sent)
        if known:
            return known
    return managers.decode_managed_fields(before, trusted=True) or {}


def _created(endpoint: Endpoint, new: Object, manager: str, now: str) -> ManagedFields:
    """The record of an object nobody has written to before: all of it is the writer's."""
    # What would be stripped is left out to begin with: this is the way of every create.
    metadata = {key: value for key, value in new["metadata"].items() if key not in _KEPT_IN_METADATA}
    fields = set_fields({**new, "metadata": metadata}, empty_object(endpoint.type), endpoint.type)
    for step in ("f:apiVersion", "f:kind"):
        fields.pop(step, None)
    about = {step: node for step, node in fields.pop("f:metadata", {}).items() if step != SELF}
    if about:
        fields["f:metadata"] = about
    mine = difference_below(fields, endpoint.reset)
    if not mine:
        return {}
    who = updater(manager, endpoint.api_version, endpoint.subresource)
    return {who: VersionedSet(mine, endpoint.api_version, now)}


def _updated(
    endpoint: Endpoint, live: Object, new: Object, known: ManagedFields, *, manager: str, now: str
) -> ManagedFields:
    """The record after an update: what changed is the writer's now, what is gone is nobody's."""
    change = compare(live, new, endpoint.type).without(endpoint.reset)
    set_now = change.set_now
    result = _after(set_now, change.removed, known)
    mine = difference(set_now, _STRIPPED)
    if mine:
        who = updater(manager, endpoint.api_version, endpoint.subresource)
        had = result[who].fields if who in result else {}
        result[who] = VersionedSet(union(mine, had), endpoint.api_version, now)
    return result


def _after(
    set_now: FieldSet, removed: FieldSet, known: ManagedFields, *, keeps: Manager | None = None
) -> ManagedFields:
    """The record once everybody but `keeps` has lost what changed and what is gone."""
    result: ManagedFields = {}
    for one, owned in known.items():
        had = fields = owned.fields
        if keeps is None or one != keeps:
            fields = difference(had, set_now)
            if removed:
                fields = difference(fields, removed)
        if fields:
            result[one] = owned if fields is had else VersionedSet(fields, owned.api_version, owned.time)
    return result


def _applied(
    endpoint: Endpoint, base: Object, applied: Object, known: ManagedFields, by: _ApplyOptions
) -> tuple[Object, ManagedFields]:
    """The object and the record after an apply."""
    who = applier(by.manager, endpoint.subresource)
    last = known.get(who)
    claims = difference_below(applied_fields(applied, endpoint.type), endpoint.reset)
    claimed = {**known, who: VersionedSet(claims, endpoint.api_version)}
    result = merge_applied(base, applied, endpoint.type)
    if last is not None:
        result = prune_unapplied(result, last.fields, [owned.fields for owned in claimed.values()], endpoint.type)
    change = compare(base, result, endpoint.type).without(endpoint.reset)
    if not by.force:
        _refuse_conflicts(endpoint, base, change, known, who)
    after = _after(change.set_now, change.removed, claimed, keeps=who)
    after.pop(who, None)
    kept = difference(claims, _STRIPPED)
    if kept:
        # An apply that changes nothing leaves the time alone; a first one then has none.
        time = by.now if result != base else last.time if last is not None else ""
        after[who] = VersionedSet(kept, endpoint.api_version, time)
    return result, after


def _refuse_conflicts(endpoint: Endpoint, base: Object, change: Comparison, known: ManagedFields, who: Manager) -> None:
    set_now = change.set_now
    taken = {one: lost for one, owned in known.items() if one != who and (lost := intersection(owned.fields, set_now))}
    if taken and who.name == last_applied.KUBECTL:
        allowed = last_applied.unchanged_fields(base, endpoint.api_version, endpoint.type)
        taken = {one: lost for one, fields in taken.items() if (lost := difference(fields, allowed))}
    if taken:
        raise conflict_error(list_conflicts(taken))


def check_applied(endpoint: Endpoint, applied: Object) -> None:
    """Refuse what is not an object of the endpoint's kind and shape."""
    if (applied.get("apiVersion"), applied.get("kind")) != (endpoint.api_version, endpoint.kind):
        raise bad_request(f"invalid object type: {_gvk(applied)}")
    metadata = applied.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    error = schema_mismatch(applied, endpoint.type)
    if error:
        raise invalid_patch(f"failed to create typed patch object ({_named(applied)}): {error}")


def _named(obj: Object) -> str:
    metadata = obj.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    return f"{names.get('namespace', '')}/{names.get('name', '')}; {_gvk(obj)}"


def _gvk(obj: Object) -> str:
    version, kind = (text if isinstance(text := obj.get(name), str) else "" for name in ("apiVersion", "kind"))
    group, slash, version_only = version.rpartition("/")
    return f"{group}/{version_only if slash else version}, Kind={kind}"
