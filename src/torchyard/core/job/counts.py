"""Successes and failures of a Job: those in its status, and those seen now for the first time."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.api.job import labels
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_active, phase
from torchyard.core.job import indexes, policies
from torchyard.core.job.backoff import ended_at
from torchyard.core.job.indexes import IndexSet
from torchyard.core.job.pods import failure_count
from torchyard.core.job.status import JobStatus
from torchyard.core.job.view import JobView, number, uid


@dataclass(slots=True)
class Counts:
    new_succeeded: list[Object]
    new_failed: list[Object]
    succeeded: int = 0
    failed: int = 0
    completed: IndexSet = field(default_factory=IndexSet)  # completion indexes
    failed_indexes: IndexSet | None = None  # only with backoffLimitPerIndex
    # The last failed pod of each index. It keeps its finalizer until a replacement takes over its failure count.
    last_failed: dict[int, Object] = field(default_factory=dict)

    @classmethod
    def of(cls, view: JobView, status: JobStatus) -> Counts:
        countable = [pod for pod in view.pods if view.is_countable(pod)]
        known_good, known_bad = set(status.uncounted_succeeded), set(status.uncounted_failed)
        good = [pod for pod in countable if phase(pod) == "Succeeded" and uid(pod) not in known_good | known_bad]
        bad = [pod for pod in countable if view.has_failed(pod) and uid(pod) not in known_bad]
        counts = cls(good, bad)
        counts.succeeded = status.succeeded + len(good) + len(known_good)
        counts.failed = (
            status.failed + len(known_bad) + sum(policies.match_failure_policy(view, pod).counts for pod in bad)
        )
        if view.is_indexed:
            counts._count_indexes(view, countable)
        return counts

    def _count_indexes(self, view: JobView, countable: list[Object]) -> None:
        stored, completions = view.status, view.completions or 0
        ended = [pod for pod in countable if phase(pod) == "Succeeded"]
        self.completed = indexes.parse(stored.get("completedIndexes"), completions)
        self.completed |= IndexSet.of(index for pod in ended if (index := view.index_of(pod)) is not None)
        self.succeeded = len(self.completed)
        if view.limit_per_index is None:
            return
        failed = [pod for pod in countable if view.has_failed(pod)]
        self.failed_indexes = indexes.parse(stored.get("failedIndexes"), completions)
        self.failed_indexes |= IndexSet.of(
            index for pod in failed if (index := view.index_of(pod)) is not None and _fails_index(view, pod)
        )
        self.failed_indexes -= self.completed
        active = {view.index_of(pod) for pod in view.pods if is_active(pod)}
        ended_indexes = self.completed | self.failed_indexes
        for pod in sorted(failed, key=lambda failed_pod: (failure_count(failed_pod), ended_at(failed_pod))):
            index = view.index_of(pod)
            if index is not None and index not in ended_indexes and index not in active:
                self.last_failed[index] = pod


def _fails_index(view: JobView, pod: Object) -> bool:
    verdict = policies.match_failure_policy(view, pod)
    if verdict.action == policies.FAIL_INDEX:
        return True
    limit = view.limit_per_index or 0
    return verdict.counts and number(pod, labels.INDEX_FAILURE_COUNT) >= limit
