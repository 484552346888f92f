"""What many generated objects have in common: labels, quantities, metadata."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.support.draw import Drawn, mostly, optional


def labels() -> Drawn:
    key = mostly(st.sampled_from(["app", "example.com/tier"]), ["a b", "-x", "a/b/c"])
    value = mostly(st.sampled_from(["web", "1", ""]), ["a b", "x" * 64])
    return st.dictionaries(key, value, max_size=2)


def quantities() -> Drawn:
    good = ["1", "500m", "2Gi", "0.5", 2, "1e3", "100Mi", "1500m", "0"]
    return mostly(st.sampled_from(good), ["-1", "lots", "1gb"])


def metadata() -> Drawn:
    return optional(
        labels=labels(),
        annotations=st.dictionaries(mostly(st.just("note"), ["a b"]), st.just("text"), max_size=1),
        finalizers=mostly(st.just(["t.io/f"]), [["nope"], [""]]),
        unknownField=st.just(1),
    )
