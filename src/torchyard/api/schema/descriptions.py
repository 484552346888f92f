"""Descriptions of kinds and fields for `kubectl explain` and OpenAPI. They are our own texts, in
`data/descriptions.txt`.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from torchyard.api.schema.builtin import DATA

_EVERY_KIND = "*"
# Definitions whose names end so have the same fields, described once.
_SUFFIXES = ("Condition", "List")


class Description(NamedTuple):
    text: str
    fields: dict[str, str]


_NOTHING = Description("", {})


@cache
def descriptions() -> dict[str, Description]:
    """Return the descriptions by definition. Fields that every kind has are under the empty name."""
    by_definition: dict[str, Description] = {}
    current = _NOTHING
    for line in (DATA / "descriptions.txt").read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.strip().partition(": ")
        if line.startswith(" "):
            current.fields[name] = text
        else:
            current = Description(text, {})
            by_definition["" if name == _EVERY_KIND else name] = current
    return by_definition


def describe(definition: str) -> Description:
    """Return the descriptions of a definition and of its fields; empty if there are none."""
    known = descriptions()
    own = known.get(definition, _NOTHING)
    alike = next((known[f"*{suffix}"] for suffix in _SUFFIXES if definition.endswith(suffix)), _NOTHING)
    return Description(own.text or alike.text, {**known[""].fields, **alike.fields, **own.fields})
