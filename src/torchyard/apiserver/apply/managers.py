"""The entries of `metadata.managedFields`: decode, encode, order and cap them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from torchyard.apiserver.apply.fieldset import FieldSet, union
from torchyard.apiserver.apply.path_elements import canonical_fieldset

APPLY, UPDATE = "Apply", "Update"
# As upstream: with more updaters than this, the oldest are merged into one.
MAX_UPDATERS = 10
OLD_UPDATERS = "ancient-changes"


class Manager(NamedTuple):
    """The identity of a field manager. An updater has one identity per API version, an applier only one."""

    name: str
    operation: str
    api_version: str  # empty for appliers
    subresource: str

    @property
    def sort_key(self) -> bytes:
        """Upstream's order of managers is that of their JSON texts."""
        named = {"manager": self.name, "operation": self.operation, "apiVersion": self.api_version}
        named["subresource"] = self.subresource
        return orjson.dumps({key: value for key, value in named.items() if value})


# The same few managers are used over and over.
_manager = lru_cache(maxsize=1024, typed=True)(Manager)


def applier(name: str, subresource: str) -> Manager:
    return _manager(name or "unknown", APPLY, "", subresource)


def updater(name: str, api_version: str, subresource: str) -> Manager:
    return _manager(name or "unknown", UPDATE, api_version, subresource)


class VersionedSet(NamedTuple):
    """The fields that a manager owns, their API version, and the time of the last change."""

    fields: FieldSet
    api_version: str
    time: str = ""


ManagedFields = dict[Manager, VersionedSet]


def decode_managed_fields(entries: Any, *, trusted: bool = False) -> ManagedFields | None:
    """Decode `managedFields`; None if it is malformed. `trusted`: the server wrote it."""
    managers: ManagedFields = {}
    for entry in entries or ():
        operation, api_version = entry.get("operation"), entry.get("apiVersion")
        fields = entry.get("fieldsV1") or {}
        if operation not in (APPLY, UPDATE) or not api_version or entry.get("fieldsType") != "FieldsV1":
            return None
        if not trusted:
            try:
                fields = canonical_fieldset(fields)
            except (ValueError, TypeError, AttributeError):
                return None
        version = "" if operation == APPLY else api_version
        manager = _manager(entry.get("manager", ""), operation, version, entry.get("subresource", ""))
        managers[manager] = VersionedSet(fields, api_version, entry.get("time") or "")
    return managers


def encode_managed_fields(managers: ManagedFields) -> list[dict[str, Any]]:
    """Encode `managedFields` in upstream's order: appliers first, then by time, then by name."""
    ordered = sorted(managers.items(), key=_order) if len(managers) > 1 else managers.items()
    return [encode_entry(manager, owned) for manager, owned in ordered]


def _order(item: tuple[Manager, VersionedSet]) -> tuple[str, ...]:
    manager, owned = item
    return (manager.operation, owned.time, manager.name, owned.api_version, manager.subresource)


def encode_entry(manager: Manager, owned: VersionedSet) -> dict[str, Any]:
    result: dict[str, Any] = {"manager": manager.name, "operation": manager.operation, "apiVersion": owned.api_version}
    if owned.time:
        result["time"] = owned.time
    result["fieldsType"] = "FieldsV1"
    result["fieldsV1"] = owned.fields
    if manager.subresource:
        result["subresource"] = manager.subresource
    return result


def cap_updaters(managers: ManagedFields) -> ManagedFields:
    """Merge the oldest updaters of a version, so that at most ten remain if possible."""
    if len(managers) <= MAX_UPDATERS:
        return managers
    updaters = [manager for manager in managers if manager.operation == UPDATE]
    if len(updaters) <= MAX_UPDATERS:
        return managers
    updaters.sort(key=lambda manager: (managers[manager].time, manager.sort_key))
    result = dict(managers)
    remaining = len(updaters)
    first_of: dict[str, Manager] = {}
    for manager in updaters:
        if remaining <= MAX_UPDATERS:
            break
        owned = result[manager]
        bucket = updater(OLD_UPDATERS, owned.api_version, "")
        first = first_of.setdefault(owned.api_version, manager)
        if manager in (first, bucket):
            continue
        if bucket not in result:
            result[bucket] = result.pop(first)
        # The time is that of the newer one.
        result[bucket] = owned._replace(fields=union(owned.fields, result[bucket].fields))
        del result[manager]
        remaining -= 1
    return result
