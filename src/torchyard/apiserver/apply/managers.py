"""The entries of `metadata.managedFields`: reading, writing, ordering and capping them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from torchyard.apiserver.apply.fieldset import FieldSet, union
from torchyard.apiserver.apply.path_elements import canonical_fieldset

APPLY, UPDATE = "Apply", "Update"
# As upstream: beyond this many updaters the oldest are merged into one.
MAX_UPDATERS = 10
OLD_UPDATERS = "ancient-changes"


class Manager(NamedTuple):
    """Who owns fields. An applier is one whatever version it applies in; an updater is one per version."""

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


# The same few managers come again and again.
_manager = lru_cache(maxsize=1024, typed=True)(Manager)


def applier(name: str, subresource: str) -> Manager:
    return _manager(name or "unknown", APPLY, "", subresource)


def updater(name: str, api_version: str, subresource: str) -> Manager:
    return _manager(name or "unknown", UPDATE, api_version, subresource)


class VersionedSet(NamedTuple):
    """What a manager owns, in which version, and since when that has not changed."""

    fields: FieldSet
    api_version: str
    time: str = ""


ManagedFields = dict[Manager, VersionedSet]


def decode_managed_fields(entries: Any, *, trusted: bool = False) -> ManagedFields | None:
    """The managers of `managedFields`; None if it is malformed. `trusted`: we wrote it ourselves."""
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
    """`managedFields` of these managers, in upstream's order: appliers first, then by time, then by name."""
    ordered = sorted(managers.items(), key=_order) if len(managers) > 1 else managers.items()
    return [encode_entry(manager, owned) for manager, owned in ordered]


def _order(one: tuple[Manager, VersionedSet]) -> tuple[str, ...]:
    manager, owned = one
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
    """The managers with the oldest updaters of a version merged, so that no more than ten are left where possible."""
    if len(managers) <= MAX_UPDATERS:
        return managers
    updaters = [one for one in managers if one.operation == UPDATE]
    if len(updaters) <= MAX_UPDATERS:
        return managers
    updaters.sort(key=lambda one: (managers[one].time, one.sort_key))
    result = dict(managers)
    left = len(updaters)
    first_of: dict[str, Manager] = {}
    for one in updaters:
        if left <= MAX_UPDATERS:
            break
        owned = result[one]
        bucket = updater(OLD_UPDATERS, owned.api_version, "")
        first = first_of.setdefault(owned.api_version, one)
        if one in (first, bucket):
            continue
        if bucket not in result:
            result[bucket] = result.pop(first)
        # The time is that of the younger one.
        result[bucket] = owned._replace(fields=union(owned.fields, result[bucket].fields))
        del result[one]
        left -= 1
    return result
