"""Which pods belong to a Job: it adopts orphans that match its selector and releases pods that no longer match."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from torchyard.api import selectors
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object


class Adoption(NamedTuple):
    owned: list[Object]
    adopt: list[Object]
    disown: list[Object]


def selector(job: Object) -> Callable[[Object], bool]:
    """A predicate: whether a pod matches the job's selector."""
    matches = selectors.from_object(job["spec"].get("selector")).matches
    return lambda pod: matches(pod["metadata"].get("labels"))


def match_pods(job: Object, owned: Iterable[Object], orphans: Iterable[Object]) -> Adoption:
    """Sort pods into owned, to adopt and to disown.

    A terminating job adopts nothing; a terminating pod is not adopted.
    """
    adoption, selects = Adoption([], [], []), selector(job)
    for pod in owned:
        if selects(pod):
            adoption.owned.append(pod)
        elif not is_terminating(job):
            adoption.disown.append(pod)
    if not is_terminating(job):
        adoption.adopt.extend(pod for pod in orphans if not is_terminating(pod) and selects(pod))
    return adoption
