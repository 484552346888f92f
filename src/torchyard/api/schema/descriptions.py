"""What people read about kinds and fields: our own words, kept in one text file beside the tables."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from torchyard.api.schema.builtin import DATA

_EVERY_KIND = "*"


class Description(NamedTuple):
    text: str
    fields: dict[str, str]


_NOTHING = Description("", {})


@cache
def descriptions() -> dict[str, Description]:
    """Definition -> its words. The fields that every kind has are found under the empty name."""
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
    """The words about a definition and about its fields; empty where there are none."""
    known = descriptions()
    own = known.get(definition, _NOTHING)
    return Description(own.text, {**known[""].fields, **own.fields})
