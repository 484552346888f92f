"""The few words the generators of objects are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Draw = st.SearchStrategy[Any]

# One value in this many is a wrong one, so that most objects are wrong in no place or in one.
RARITY = 16


def mostly(good: Draw, bad: list[Any]) -> Draw:
    """Usually a good value, now and then one of the bad ones."""
    return st.integers(1, RARITY).flatmap(lambda roll: st.sampled_from(bad) if roll == RARITY else good)


@st.composite
def optional(draw: st.DrawFn, required: Mapping[str, Draw] | None = None, /, **fields: Draw) -> dict[str, Any]:
    """An object with the required fields and up to three of the others."""
    chosen = draw(st.lists(st.sampled_from(sorted(fields)), max_size=3, unique=True)) if fields else []
    return {name: draw(one) for name, one in ({**(required or {}), **{name: fields[name] for name in chosen}}).items()}


def labels() -> Draw:
    key = mostly(st.sampled_from(["app", "example.com/tier"]), ["a b", "-x", "a/b/c"])
    value = mostly(st.sampled_from(["web", "1", ""]), ["a b", "x" * 64])
    return st.dictionaries(key, value, max_size=2)


def quantities() -> Draw:
    good = ["1", "500m", "2Gi", "0.5", 2, "1e3", "100Mi", "1500m", "0"]
    return mostly(st.sampled_from(good), ["-1", "lots", "1gb"])


def metadata() -> Draw:
    return optional(
        labels=labels(),
        annotations=st.dictionaries(mostly(st.just("note"), ["a b"]), st.just("text"), max_size=1),
        finalizers=mostly(st.just(["t.io/f"]), [["nope"], [""]]),
        unknownField=st.just(1),
    )
