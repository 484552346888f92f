"""The pods that work for a Job: how many there should be, which go, which come, and when the next may."""

from __future__ import annotations

from typing import NamedTuple

from torchyard.api.objects import Object
from torchyard.core.job import backoff
from torchyard.core.job.backoff import Backoff, ended_at
from torchyard.core.job.counts import Counts
from torchyard.core.job.indexes import first_free
from torchyard.core.job.pods import all_failures, make_pod
from torchyard.core.job.view import JobView, first_leaving, is_active, is_on_its_way_out, is_ready

_MOST_AT_ONCE = 500


class PodDeletion(NamedTuple):
    pod: Object
    is_forgotten: bool = False  # it goes because it is not needed: its finalizer goes first, and it counts nowhere


class PodPlan:
    """Filled by `keep` or `dismiss`: pods to create and to delete, and what is left to count then."""

    def __init__(self, view: JobView, tally: Counts, pause: Backoff) -> None:
        self._view, self._tally, self._pause = view, tally, pause
        self._there = [pod for pod in view.pods if is_active(pod)]
        self._leaving = [pod for pod in view.pods if is_on_its_way_out(pod)]
        self.create: list[Object] = []
        self.delete: list[PodDeletion] = []
        self.wait: float | None = None  # seconds until a pod may be replaced

    @property
    def active(self) -> int:
        return len(self._there) - len(self.delete) + len(self.create)

    @property
    def ready(self) -> int:
        return sum(map(is_ready, self._there)) - sum(is_ready(one.pod) for one in self.delete)

    @property
    def terminating(self) -> int:
        return len(self._leaving) + len(self.delete)

    def dismiss(self) -> None:
        """The job ends: everybody goes, and is counted on the way."""
        self.delete = [PodDeletion(pod) for pod in self._there]

    def keep(self) -> None:
        """Either give up some or make some, never both at once, as upstream does."""
        wanted = self._wanted()
        surplus = self._surplus(len(self._there) - wanted)
        if surplus:
            self.delete = [PodDeletion(pod, is_forgotten=True) for pod in surplus[:_MOST_AT_ONCE]]
            return
        leaving = len(self._leaving) if self._view.waits_for_the_end else 0
        missing = min(wanted - leaving - len(self._there), _MOST_AT_ONCE)
        if missing > 0:
            self._hire(missing)

    def _wanted(self) -> int:
        view, succeeded = self._view, self._tally.succeeded
        if view.is_suspended:
            return 0
        if view.completions is None:
            # A work queue: once one has found nothing left to do, those that run finish and no more come.
            return len(self._there) if succeeded else view.parallelism
        return max(0, min(view.parallelism, view.completions - succeeded))

    def _surplus(self, count: int) -> list[Object]:
        gone: list[Object] = []
        left = self._there
        if self._view.is_indexed:
            by_index: dict[int | None, list[Object]] = {}
            for pod in self._there:
                by_index.setdefault(self._view.index_of(pod), []).append(pod)
            gone = by_index.pop(None, [])
            left = []
            for pods in by_index.values():
                *others, keeper = first_leaving(pods)
                gone += others
                left.append(keeper)
        return gone + first_leaving(left)[: max(0, count - len(gone))]

    def _hire(self, missing: int) -> None:
        view, tally = self._view, self._tally
        if view.limit_per_index is None and (left := self._pause.seconds_left(view.now)) > 0:
            self.wait = left
        elif view.is_indexed:
            for index in first_free(self._taken_indexes(), missing, view.completions or 0):
                if (left := self._seconds_left(index)) > 0:
                    self.wait = left if self.wait is None else min(self.wait, left)
                else:
                    self.create.append(make_pod(view, index, tally.held.get(index)))
        else:
            self.create = [make_pod(view) for _ in range(missing)]

    def _taken_indexes(self) -> set[int]:
        view, tally = self._view, self._tally
        pods = [*self._there, *(self._leaving if view.waits_for_the_end else ())]
        held = {index for pod in pods if (index := view.index_of(pod)) is not None}
        return held | tally.completed | (tally.failed_indexes or set())

    def _seconds_left(self, index: int) -> float:
        failed = self._tally.held.get(index)
        if failed is None:
            return 0.0
        return backoff.seconds_left(all_failures(failed) + 1, ended_at(failed), self._view.now)
