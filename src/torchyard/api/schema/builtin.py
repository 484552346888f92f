"""The types of the built-in kinds, loaded on demand from the generated table.

A definition is built on first use and shared afterwards: the table has 570 definitions, of which a server uses a few
dozen. tools/generate_tables.py generates the table; this module knows no kind of it by name.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from torchyard.api.group_version import GroupVersionKind
from torchyard.api.schema.types import Shape, Type

# importlib.resources would take longer at process start than reading the tables
DATA = Path(__file__).parent / "data"


class _Table(NamedTuple):
    rows: dict[str, bytes]
    kinds: dict[str, str]  # group/version/Kind -> definition


def table_bytes() -> bytes:
    """Return the raw table, to distinguish the tables of two releases."""
    return (DATA / "types.txt").read_bytes()


@cache
def _table() -> _Table:
    table = _Table({}, {})
    for line in table_bytes().splitlines():
        name, kind, row = line.split(b"\t", 2)
        definition_name = name.decode()
        table.rows[definition_name] = row
        if kind:
            table.kinds[kind.decode()] = definition_name
    return table


def definition_names() -> tuple[str, ...]:
    return tuple(_table().rows)


def kinds() -> tuple[GroupVersionKind, ...]:
    """Return every kind in the table, including lists and reviews."""
    return tuple(GroupVersionKind(*kind.split("/")) for kind in _table().kinds if kind[0] != "*")


@cache
def _kinds_by_definition() -> dict[str, GroupVersionKind]:
    return {name: GroupVersionKind(*kind.split("/")) for kind, name in _table().kinds.items() if kind[0] != "*"}


def kind_of(name: str) -> GroupVersionKind | None:
    """Return the kind of a definition, if it defines one."""
    return _kinds_by_definition().get(name)


# Bodies that kube-apiserver still reads, although it no longer serves their version.
_OLDER = {"policy/v1beta1/Eviction": "policy/v1/Eviction"}


def definition_of(gvk: GroupVersionKind) -> str | None:
    """Return the definition of a kind: io.k8s.api.core.v1.Pod. DeleteOptions and the like exist in every group."""
    kinds, kind = _table().kinds, "/".join(gvk)
    return kinds.get(_OLDER.get(kind, kind)) or kinds.get(f"*/*/{gvk.kind}")


def type_of(gvk: GroupVersionKind) -> Type | None:
    name = definition_of(gvk)
    return definition(name) if name else None


_definitions: dict[str, Type] = {}


def definition(name: str) -> Type:
    """Return the type of a definition, including nested types. Raises KeyError for an unknown name."""
    known = _definitions.get(name)
    if known is not None:
        return known
    row = orjson.loads(_table().rows[name])
    if "type" in row:
        shape, format = _scalar(row["type"])
        type = Type(shape, name=name, format=format)
        _definitions[name] = type
        return type
    type = Type("object", name=name, required=tuple(row.get("required", ())), atomic_map=row.get("atomic", False))
    # registered before its fields are built, because a JSON schema contains JSON schemas
    _definitions[name] = type
    for field, spelled in row["fields"].items():
        type.fields[field] = _field(spelled)
    return type


def _field(spelled: Any) -> Type:
    """Return the type of a field, list item or map value, given as a type name or as an object with details."""
    if isinstance(spelled, str):
        return _plain(spelled)
    row: dict[str, Any] = spelled
    if "items" in row:
        type = Type("list", items=_field(row["items"]), list_type=row.get("list", "atomic"))
        type.list_keys = tuple(row.get("keys", ()))
    elif "values" in row:
        type = Type("map", values=_field(row["values"]))
    else:
        type = _plain(row["type"])
    type.zero = row.get("zero", "omit")
    type.nullable = row.get("null", False)
    type.enum = tuple(row.get("enum", ()))
    type.go = row.get("go", type.go)
    if "default" in row:
        type.default, type.has_default = row["default"], True
    type.atomic_map = row.get("atomic", type.atomic_map)
    type.patch_strategy = tuple(row["strategy"].split(",")) if "strategy" in row else ()
    type.patch_merge_key = row.get("merge", "")
    return type


def _plain(name: str) -> Type:
    """Return a scalar, or a node that shares the fields of a definition."""
    if name not in _table().rows:
        shape, format = _scalar(name)
        return Type(shape, format=format, zero="omit")
    target = definition(name)
    return Type(
        target.shape,
        name=name,
        fields=target.fields,
        format=target.format,
        required=target.required,
        atomic_map=target.atomic_map,
        zero="omit",
    )


def _scalar(spelled: str) -> tuple[Shape, str]:
    shape, _, format = spelled.partition(":")
    return shape, format  # type: ignore[return-value]  # the generated table uses Type's own vocabulary
