"""Patches of all four types for a generated object: what another object of the same kind would change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from tests.conformance.golden.draw import labels
from tests.conformance.golden.kinds import PLAIN, SPECS, objects
from tests.support.draw import Drawn, mostly
from tests.support.http import APPLY, JSON_PATCH, MERGE, STRATEGIC


class Patch(NamedTuple):
    media_type: str
    body: Any
    query: dict[str, str]


def _partial(plural: str) -> Drawn:
    """A part of an object of this kind."""
    content = (SPECS | PLAIN)[plural][2]
    changes = st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"labels": labels()})})
    named = content.map(lambda drawn: {"spec": drawn} if plural in SPECS else drawn)
    return st.one_of(changes, named)


def _operations() -> Drawn:
    path = st.sampled_from(
        [
            *(
                "/metadata/labels",
                "/metadata/annotations",
                "/metadata/labels/app",
                "/spec",
                "/data/a",
                "/spec/replicas",
            ),
            *("/spec/containers/0/image", "/spec/suspend", "/spec/ports/0/port", "/spec/size", "/metadata/finalizers"),
            *("/nothing/here", "/spec/tolerations/-", "/metadata/name", "", "/spec/color"),
        ]
    )
    value = st.sampled_from(["x", 3, True, None, {"app": "new"}, ["t.io/f"], {"key": "k", "operator": "Exists"}])
    target = st.one_of(
        st.fixed_dictionaries({"op": st.sampled_from(["add", "replace", "test"]), "path": path, "value": value}),
        st.fixed_dictionaries({"op": mostly(st.just("remove"), ["frob"]), "path": path}),
        st.fixed_dictionaries({"op": st.sampled_from(["copy", "move"]), "from": path, "path": path}),
    )
    return st.lists(target, min_size=1, max_size=2)


def patches(plural: str) -> Drawn:
    """One patch to three."""
    strict = st.sampled_from([{}, {}, {}, {"fieldValidation": "Strict"}])
    manager = st.sampled_from(["kubectl-edit", "controller"]).map(lambda name: {"fieldManager": name})
    query = st.builds(lambda a, b: a | b, strict, manager)
    target = st.one_of(
        st.builds(Patch, st.just(MERGE), _partial(plural), query),
        st.builds(Patch, st.just(STRATEGIC), _partial(plural), query),
        st.builds(Patch, st.just(JSON_PATCH), _operations(), query),
        st.builds(
            Patch,
            st.just(APPLY),
            _partial(plural),
            st.builds(lambda a, b: a | b, manager, st.sampled_from([{}, {"force": "true"}])),
        ),
    )
    return st.lists(target, min_size=1, max_size=3)


class Talk(NamedTuple):
    """What is said to both servers about one object."""

    plural: str
    obj: dict[str, Any]
    changes: list[Patch]


@st.composite
def talks(draw: Callable[[Drawn], Any]) -> Talk:
    plural, obj = draw(objects())
    return Talk(plural, obj, draw(patches(plural)))
