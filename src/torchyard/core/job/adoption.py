"""Which pods are a Job's: those it controls and selects. Orphans it selects are taken in, others let go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from torchyard.api import selectors
from torchyard.api.objects import Object
from torchyard.core.job.view import is_terminating


class Adoption(NamedTuple):
    owned: list[Object]
    adopt: list[Object]
    disown: list[Object]


def selector(job: Object) -> Callable[[Object], bool]:
    """Whether a pod has the labels that the job looks for."""
    matches = selectors.from_object(job["spec"].get("selector")).matches
    return lambda pod: matches(pod["metadata"].get("labels"))


def match_pods(job: Object, owned: Iterable[Object], orphans: Iterable[Object]) -> Adoption:
    """A job or a pod that is on its way out makes no new ties."""
    adoption, selects = Adoption([], [], []), selector(job)
    for pod in owned:
        if selects(pod):
            adoption.owned.append(pod)
        elif not is_terminating(job):
            adoption.disown.append(pod)
    if not is_terminating(job):
        adoption.adopt.extend(pod for pod in orphans if not is_terminating(pod) and selects(pod))
    return adoption
