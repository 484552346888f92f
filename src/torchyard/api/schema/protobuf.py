"""Protobuf messages of the built-in kinds: field numbers, JSON names and types, loaded from the generated table."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import orjson

from torchyard.api.schema.builtin import DATA


class Field(NamedTuple):
    """A numbered field. An empty `name` means that its fields are inlined into the enclosing message."""

    name: str
    type: str  # string, bool, bytes, int32, int64, double, or a message
    repeated: bool
    keyed: bool  # a map from string to `type`


@cache
def _rows() -> dict[str, bytes]:
    lines = (DATA / "protobuf.txt").read_bytes().splitlines()
    return {name.decode(): row for name, _, row in (line.partition(b"\t") for line in lines)}


@cache
def message_fields(name: str) -> dict[int, Field] | None:
    """Return the fields of a message by number, or None for an unknown message."""
    row = _rows().get(name)
    if row is None:
        return None
    return {int(number): _field(*spelled) for number, spelled in orjson.loads(row).items()}


def _field(name: str, spelled: str) -> Field:
    prefix = spelled[:2]
    if prefix in ("[]", "{}"):
        return Field(name, spelled[2:], repeated=prefix == "[]", keyed=prefix == "{}")
    return Field(name, spelled, repeated=False, keyed=False)
