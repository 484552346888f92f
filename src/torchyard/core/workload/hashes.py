"""Short hashes in names and labels: of pod templates, and of the data of ControllerRevisions."""

from __future__ import annotations

import orjson

from torchyard.api.objects import Object

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that no words appear
_OFFSET, _PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF


def template_hash(template: Object, collisions: int | None) -> str:
    """The hash of a pod template, which another `collisions` changes.

    Upstream hashes the fields of its own structures, so its hashes have the same form but another value.
    """
    data = orjson.dumps(template, option=orjson.OPT_SORT_KEYS)
    return _encode(data if collisions is None else data + collisions.to_bytes(4, "little"))


def revision_hash(data: bytes, collisions: int | None) -> str:
    """Upstream's hash of a StatefulSet's revision: FNV-1 of its JSON."""
    return _encode(data if collisions is None else data + str(collisions).encode())


def _encode(data: bytes) -> str:
    value = _OFFSET
    for byte in data:
        value = value * _PRIME & _MASK ^ byte
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))
