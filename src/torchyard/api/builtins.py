"""The built-in resources: everything a server serves before the first CustomResourceDefinition.

Names, verbs and subresources come from a generated table, strategies from `api.kinds`. This module only decides in
which group and version objects are stored when several are served.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import orjson

from torchyard.api.group_version import GroupVersionKind
from torchyard.api.kinds import STRATEGIES
from torchyard.api.resources import Resource, Subresource
from torchyard.api.schema.builtin import DATA, type_of
from torchyard.api.strategy import Strategy

# (group, plural) -> (group, version) in which its objects are stored, where that differs from the served one.
STORED_IN = {
    ("events.k8s.io", "events"): ("", "v1"),
    ("autoscaling", "horizontalpodautoscalers"): ("autoscaling", "v2"),
}


@cache
def builtin_resources() -> tuple[Resource, ...]:
    """Return every built-in resource: groups and versions in order of preference, resources by name."""
    table = orjson.loads((DATA / "resources.json").read_bytes())
    return tuple(
        resource for entry in table for resource in _version(entry["group"], entry["version"], entry["resources"])
    )


def _version(group: str, version: str, rows: list[dict[str, Any]]) -> list[Resource]:
    beneath: dict[str, dict[str, Subresource]] = {}
    for row in rows:
        plural, _, name = row["name"].partition("/")
        if name:
            gvk = GroupVersionKind(row.get("group", group), row.get("version", version), row["kind"])
            beneath.setdefault(plural, {})[name] = Subresource(name, gvk, tuple(row["verbs"]))
    return [_resource(group, version, row, beneath.get(row["name"], {})) for row in rows if "/" not in row["name"]]


def _resource(group: str, version: str, row: dict[str, Any], subresources: dict[str, Subresource]) -> Resource:
    plural = row["name"]
    storage_group, storage_version = STORED_IN.get((group, plural), (group, version))
    return Resource(
        group=group,
        version=version,
        plural=plural,
        singular=row.get("singular", ""),
        kind=row["kind"],
        namespaced=row.get("namespaced", False),
        verbs=tuple(row["verbs"]),
        short_names=tuple(row.get("shortNames", ())),
        categories=tuple(row.get("categories", ())),
        subresources=subresources,
        storage_version=storage_version,
        storage_group=storage_group,
        load_type=partial(type_of, GroupVersionKind(group, version, row["kind"])),
        strategy=STRATEGIES.get((group, plural)) or Strategy(),
    )
