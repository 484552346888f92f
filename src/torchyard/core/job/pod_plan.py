"""Which pods of a Job to create and to delete, and when a failed pod may be replaced."""

from __future__ import annotations

from typing import NamedTuple

from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_active, is_ready
from torchyard.core.job import backoff
from torchyard.core.job.backoff import Backoff, ended_at
from torchyard.core.job.counts import Counts
from torchyard.core.job.indexes import IndexSet, first_free
from torchyard.core.job.pods import failure_count, make_pod
from torchyard.core.job.view import JobView, deletion_order, is_terminating_active

_MOST_AT_ONCE = 500


class PodDeletion(NamedTuple):
    pod: Object
    is_surplus: bool = False  # not needed any more: its finalizer is removed first, and it is not counted


class PodPlan:
    """Filled by `sync` or `delete_all`: the pods to create and to delete, and the resulting counters."""

    def __init__(self, view: JobView, counts: Counts, job_backoff: Backoff) -> None:
        self._view, self._counts, self._backoff = view, counts, job_backoff
        self._active_pods = [pod for pod in view.pods if is_active(pod)]
        self._terminating_pods = [pod for pod in view.pods if is_terminating_active(pod)]
        self.create: list[Object] = []
        self.delete: list[PodDeletion] = []
        self.retry_after: float | None = None  # seconds until a pod may be replaced

    @property
    def active(self) -> int:
        return len(self._active_pods) - len(self.delete) + len(self.create)

    @property
    def ready(self) -> int:
        return sum(map(is_ready, self._active_pods)) - sum(is_ready(deletion.pod) for deletion in self.delete)

    @property
    def terminating(self) -> int:
        return len(self._terminating_pods) + len(self.delete)

    def delete_all(self) -> None:
        """The job is finished: delete every active pod. Each is counted when it ends."""
        self.delete = [PodDeletion(pod) for pod in self._active_pods]

    def sync(self) -> None:
        """Delete surplus pods or create missing ones, never both in one pass, as upstream does."""
        desired = self._desired()
        surplus = self._surplus(len(self._active_pods) - desired)
        if surplus:
            self.delete = [PodDeletion(pod, is_surplus=True) for pod in surplus[:_MOST_AT_ONCE]]
            return
        leaving = len(self._terminating_pods) if self._view.replaces_only_ended else 0
        missing = min(desired - leaving - len(self._active_pods), _MOST_AT_ONCE)
        if missing > 0:
            self._create_missing(missing)

    def _desired(self) -> int:
        view, succeeded = self._view, self._counts.succeeded
        if view.is_suspended:
            return 0
        if view.completions is None:
            # A work queue job: after the first success the running pods finish, and no new ones are created.
            return len(self._active_pods) if succeeded else view.parallelism
        return max(0, min(view.parallelism, view.completions - succeeded))

    def _surplus(self, count: int) -> list[Object]:
        surplus: list[Object] = []
        remaining = self._active_pods
        if self._view.is_indexed:
            by_index: dict[int | None, list[Object]] = {}
            for pod in self._active_pods:
                by_index.setdefault(self._view.index_of(pod), []).append(pod)
            surplus = by_index.pop(None, [])
            remaining = []
            for pods in by_index.values():
                *others, survivor = deletion_order(pods)
                surplus += others
                remaining.append(survivor)
        return surplus + deletion_order(remaining)[: max(0, count - len(surplus))]

    def _create_missing(self, missing: int) -> None:
        view, counts = self._view, self._counts
        if view.limit_per_index is None and (seconds_left := self._backoff.seconds_left(view.now)) > 0:
            self.retry_after = seconds_left
        elif view.is_indexed:
            for index in first_free(self._taken_indexes(), missing, view.completions or 0):
                if (seconds_left := self._seconds_left(index)) > 0:
                    self.retry_after = seconds_left if self.retry_after is None else min(self.retry_after, seconds_left)
                else:
                    self.create.append(make_pod(view, index, counts.last_failed.get(index)))
        else:
            self.create = [make_pod(view) for _ in range(missing)]

    def _taken_indexes(self) -> IndexSet:
        view, counts = self._view, self._counts
        pods = [*self._active_pods, *(self._terminating_pods if view.replaces_only_ended else ())]
        used = IndexSet.of(index for pod in pods if (index := view.index_of(pod)) is not None)
        return used | counts.completed | (counts.failed_indexes or IndexSet())

    def _seconds_left(self, index: int) -> float:
        failed = self._counts.last_failed.get(index)
        if failed is None:
            return 0.0
        return backoff.seconds_left(failure_count(failed) + 1, ended_at(failed), self._view.now)
