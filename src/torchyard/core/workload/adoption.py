"""Which objects belong to a controller: it adopts orphans that its selector matches and releases those it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from torchyard.api import selectors
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object

Predicate = Callable[[Object], bool]


class ClaimedObjects(NamedTuple):
    owned: list[Object]
    adopt: list[Object]
    release: list[Object]


def selector_of(owner: Object) -> selectors.LabelSelector:
    """The compiled selector; that of a ReplicationController is a map."""
    selector = owner["spec"].get("selector")
    if owner.get("kind") == "ReplicationController":
        return selectors.from_map(selector)
    return selectors.from_object(selector)


def match(
    owner: Object, owned: Iterable[Object], orphans: Iterable[Object], *, eligible: Predicate = lambda _obj: True
) -> ClaimedObjects:
    """`eligible`: whether an object whose labels match may belong to the owner.

    A terminating owner adopts and releases nothing; a terminating object is not adopted.
    """
    matches = selector_of(owner).matches
    selected: Predicate = lambda obj: matches(obj["metadata"].get("labels")) and eligible(obj)  # noqa: E731
    adoption = ClaimedObjects([], [], [])
    for obj in owned:
        if selected(obj):
            adoption.owned.append(obj)
        elif not is_terminating(owner):
            adoption.release.append(obj)
    if not is_terminating(owner):
        adoption.adopt.extend(obj for obj in orphans if not is_terminating(obj) and selected(obj))
    return adoption
