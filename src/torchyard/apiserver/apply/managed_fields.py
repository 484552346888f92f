"""Managed fields of create, update, patch and apply: the interface of this package.

`record_update` records the manager of each field once the object is computed; `apply` computes the object as well.
Both see the object after defaulting and before admission: as upstream, fields that admission sets have no manager.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torchyard.api.errors import bad_request
from torchyard.api.objects import Object
from torchyard.api.patch.patch_errors import invalid_patch, too_deep
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

BEFORE_FIRST_APPLY = "before-first-apply"
# Fields that the server sets have no manager.
_SERVER_FIELDS = "name namespace creationTimestamp selfLink uid clusterName generation managedFields resourceVersion"
_SERVER_METADATA = frozenset(_SERVER_FIELDS.split())
_STRIPPED = of_paths(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(("f:metadata", f"f:{name}") for name in _SERVER_METADATA),
)


def record_update(endpoint: Endpoint, live: Object | None, new: Object, *, manager: str, now: str) -> None:
    """Set `metadata.managedFields` of `new` after a create (`live` is None), update or patch; nothing else changes."""
    sent = new["metadata"].pop("managedFields", None)
    try:
        if live is None:
            managed = _record_create(endpoint, new, manager, now)
        else:
            old_metadata = dict(live["metadata"])
            managed = _starting_record(old_metadata.pop("managedFields", None), sent, endpoint.subresource)
            # No record, or a wiped one: upstream does not start one before the first apply.
            if managed:
                live_without_managed = {**live, "metadata": old_metadata}
                managed = cap_updaters(
                    _record_update(endpoint, live_without_managed, new, managed, manager=manager, now=now)
                )
    except UnkeyedItemError:
        # As upstream: an object with list items without valid keys keeps its record.
        managed = _starting_record(live["metadata"].get("managedFields"), None, "") if live is not None else {}
    except RecursionError:
        raise too_deep() from None
    if managed:
        new["metadata"]["managedFields"] = managers.encode_managed_fields(managed)


def apply(
    endpoint: Endpoint, live: Object | None, applied: Object, *, manager: str, now: str, force: bool = False
) -> Object:
    """The object after a server-side apply (which creates it if `live` is None), managed fields included.

    Raises 409 with a cause for each changed field that another manager owns, unless `force`. The result is not decoded
    and defaulted yet. If it equals `live`, it need not be written.
    """
    try:
        return _check_and_apply(endpoint, live, applied, _ApplyOptions(manager, now, force=force))
    except RecursionError:
        raise too_deep() from None


def _check_and_apply(endpoint: Endpoint, live: Object | None, applied: Object, options: _ApplyOptions) -> Object:
    check_applied(endpoint, applied)
    base = live if live is not None else empty_object(endpoint.type)
    managed = managers.decode_managed_fields((base.get("metadata") or {}).get("managedFields"), trusted=True) or {}
    try:
        if live is not None and not managed:
            managed = _record_create(endpoint, live, BEFORE_FIRST_APPLY, options.now)
        result, managed = _apply(endpoint, base, applied, managed, options)
    except UnkeyedItemError as error:
        raise invalid_patch(f"failed to create typed live object ({_describe(applied)}): {error}") from None
    metadata = {key: value for key, value in (result.get("metadata") or {}).items() if key != "managedFields"}
    if managed:
        metadata["managedFields"] = managers.encode_managed_fields(managed)
    result = {**result, "metadata": metadata}
    if options.manager == last_applied.KUBECTL:
        last_applied.refresh(result, applied)
    return result


class _ApplyOptions(NamedTuple):
    """The field manager, the time, and whether to override conflicts."""

    manager: str
    now: str
    force: bool = False


def _starting_record(before: Any, sent: Any, subresource: str) -> ManagedFields:
    """The record to start from: the client's if it may send one, or else the live object's."""
    if not subresource and sent is not None and sent != before:
        if sent in ([], [{}]):
            # This is how a client wipes the record.
            return {}
        managed = managers.decode_managed_fields(sent)
        if managed:
            return managed
    return managers.decode_managed_fields(before, trusted=True) or {}


def _record_create(endpoint: Endpoint, new: Object, manager: str, now: str) -> ManagedFields:
    """The record of a new object: the writer owns all fields."""
    # Fields without a manager are left out from the start, because every create takes this path.
    metadata = {key: value for key, value in new["metadata"].items() if key not in _SERVER_METADATA}
    fields = set_fields({**new, "metadata": metadata}, empty_object(endpoint.type), endpoint.type)
    for step in ("f:apiVersion", "f:kind"):
        fields.pop(step, None)
    metadata_fields = {step: node for step, node in fields.pop("f:metadata", {}).items() if step != SELF}
    if metadata_fields:
        fields["f:metadata"] = metadata_fields
    owned = difference_below(fields, endpoint.reset)
    if not owned:
        return {}
    manager_key = updater(manager, endpoint.api_version, endpoint.subresource)
    return {manager_key: VersionedSet(owned, endpoint.api_version, now)}


def _record_update(
    endpoint: Endpoint, live: Object, new: Object, managed: ManagedFields, *, manager: str, now: str
) -> ManagedFields:
    """The record after an update: the writer owns the changed fields; removed fields have no owner."""
    change = compare(live, new, endpoint.type).without(endpoint.reset)
    set_now = change.set_now
    result = _without_changed(set_now, change.removed, managed)
    owned = difference(set_now, _STRIPPED)
    if owned:
        manager_key = updater(manager, endpoint.api_version, endpoint.subresource)
        previous = result[manager_key].fields if manager_key in result else {}
        result[manager_key] = VersionedSet(union(owned, previous), endpoint.api_version, now)
    return result


def _without_changed(
    set_now: FieldSet, removed: FieldSet, managed: ManagedFields, *, except_manager: Manager | None = None
) -> ManagedFields:
    """The record in which every manager but `except_manager` has lost the changed and removed fields."""
    result: ManagedFields = {}
    for manager, owned in managed.items():
        previous = fields = owned.fields
        if except_manager is None or manager != except_manager:
            fields = difference(previous, set_now)
            if removed:
                fields = difference(fields, removed)
        if fields:
            result[manager] = owned if fields is previous else VersionedSet(fields, owned.api_version, owned.time)
    return result


def _apply(
    endpoint: Endpoint, base: Object, applied: Object, managed: ManagedFields, options: _ApplyOptions
) -> tuple[Object, ManagedFields]:
    """The object and the record after an apply."""
    manager_key = applier(options.manager, endpoint.subresource)
    previous = managed.get(manager_key)
    claims = difference_below(applied_fields(applied, endpoint.type), endpoint.reset)
    claimed = {**managed, manager_key: VersionedSet(claims, endpoint.api_version)}
    result = merge_applied(base, applied, endpoint.type)
    if previous is not None:
        result = prune_unapplied(result, previous.fields, [owned.fields for owned in claimed.values()], endpoint.type)
    change = compare(base, result, endpoint.type).without(endpoint.reset)
    if not options.force:
        _check_conflicts(endpoint, base, change, managed, manager_key)
    updated = _without_changed(change.set_now, change.removed, claimed, except_manager=manager_key)
    updated.pop(manager_key, None)
    owned = difference(claims, _STRIPPED)
    if owned:
        # An apply that changes nothing keeps the time; a first apply then has none.
        time = options.now if result != base else previous.time if previous is not None else ""
        updated[manager_key] = VersionedSet(owned, endpoint.api_version, time)
    return result, updated


def _check_conflicts(
    endpoint: Endpoint, base: Object, change: Comparison, managed: ManagedFields, applier_key: Manager
) -> None:
    set_now = change.set_now
    taken = {
        manager: lost
        for manager, owned in managed.items()
        if manager != applier_key and (lost := intersection(owned.fields, set_now))
    }
    if taken and applier_key.name == last_applied.KUBECTL:
        allowed = last_applied.unchanged_fields(base, endpoint.api_version, endpoint.type)
        taken = {manager: lost for manager, fields in taken.items() if (lost := difference(fields, allowed))}
    if taken:
        raise conflict_error(list_conflicts(taken))


def check_applied(endpoint: Endpoint, applied: Object) -> None:
    """Reject an object that is not of the endpoint's kind or does not match its schema."""
    if (applied.get("apiVersion"), applied.get("kind")) != (endpoint.api_version, endpoint.kind):
        raise bad_request(f"invalid object type: {_gvk(applied)}")
    metadata = applied.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    error = schema_mismatch(applied, endpoint.type)
    if error:
        raise invalid_patch(f"failed to create typed patch object ({_describe(applied)}): {error}")


def _describe(obj: Object) -> str:
    metadata = obj.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    return f"{names.get('namespace', '')}/{names.get('name', '')}; {_gvk(obj)}"


def _gvk(obj: Object) -> str:
    version, kind = (text if isinstance(text := obj.get(name), str) else "" for name in ("apiVersion", "kind"))
    group, slash, version_only = version.rpartition("/")
    return f"{group}/{version_only if slash else version}, Kind={kind}"
