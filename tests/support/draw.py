"""What generated requests have in common, as hypothesis strategies: a failing one shrinks to its smallest form.

`examples` is how a test that asks a live server uses them: the same examples in every run, as many as the effort says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from tests.support.effort import rounds

Drawn = st.SearchStrategy[Any]


def examples(usual: int, full: int) -> settings:
    """The settings of a test whose every example is a talk with a server that is already up."""
    return settings(
        max_examples=rounds(usual, full),
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def mostly(draw: Callable[[Drawn], Any], good: Drawn, bad: Sequence[Any], *, rarity: int = 16) -> Any:
    """Usually a good value, now and then one of the bad ones: most objects are wrong in no place or in one."""
    unlucky = draw(st.integers(1, rarity)) == rarity
    return draw(st.sampled_from(bad)) if unlucky else draw(good)


def optional(required: Mapping[str, Drawn] | None = None, /, **fields: Drawn) -> Drawn:
    """An object with the required fields and up to three of the others."""
    return _optional(required or {}, fields) if fields else st.fixed_dictionaries(dict(required or {}))


@st.composite
def _optional(draw: Callable[[Drawn], Any], required: Mapping[str, Drawn], fields: Mapping[str, Drawn]) -> Any:
    chosen = draw(st.lists(st.sampled_from(sorted(fields)), max_size=3, unique=True))
    return {name: draw(strategy) for name, strategy in {**required, **{key: fields[key] for key in chosen}}.items()}


def json_values(keys: Sequence[str], *, leaves: int = 8) -> Drawn:
    """Any JSON, with object keys that mean something somewhere."""
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.integers(-2, 99),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text("ab/~0-.$ \x00\x7f\u00e9\u202e\U0001f600", max_size=8),
        st.sampled_from(["1Gi", "a", "2026-01-01T00:00:00Z", "$patch", "", "IPv4", "TCP", "Always", "0", "http"]),
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys), inner, max_size=4),
        max_leaves=leaves,
    )
