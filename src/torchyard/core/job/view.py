"""The input of a decision about a Job: the job and its pods, with helpers to read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchyard.api.job import labels
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import container_restarts, has_ended, is_ready, phase
from torchyard.core.job.backoff import NO_FAILURES, Backoff

_MAX_DIGITS = 10  # of an int32
INDEXED, NON_INDEXED = "Indexed", "NonIndexed"


@dataclass(frozen=True, slots=True)
class JobView:
    job: Object  # as stored, so with defaults
    now: datetime
    pods: tuple[Object, ...] = ()  # the pods that the job controls
    backoff: Backoff = NO_FAILURES

    @property
    def name(self) -> str:
        return str(self.job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"].get("namespace", ""))

    @property
    def spec(self) -> Object:
        spec: Object = self.job["spec"]
        return spec

    @property
    def status(self) -> Object:
        return self.job.get("status") or {}

    @property
    def is_indexed(self) -> bool:
        return bool(self.spec.get("completionMode") == INDEXED)

    @property
    def completions(self) -> int | None:
        completions = self.spec.get("completions")
        return None if completions is None else int(completions)

    @property
    def parallelism(self) -> int:
        return int(self.spec.get("parallelism", 1))

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def limit_per_index(self) -> int | None:
        limit = self.spec.get("backoffLimitPerIndex")
        return None if limit is None else int(limit)

    @property
    def replaces_only_ended(self) -> bool:
        """Whether a terminating pod is counted and replaced only when it has ended."""
        return self.spec.get("podReplacementPolicy") == "Failed" or self.spec.get("podFailurePolicy") is not None

    def has_failed(self, pod: Object) -> bool:
        """A deleted pod counts as failed at once, because a pod on a lost node never reports its end."""
        if phase(pod) == "Failed":
            return True
        return not self.replaces_only_ended and is_terminating(pod) and phase(pod) != "Succeeded"

    def index_of(self, pod: Object) -> int | None:
        """The completion index of an Indexed job's pod; None if it is not an index of this job."""
        text = annotation(pod, labels.COMPLETION_INDEX)
        if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS:
            return None
        return int(text) if int(text) < (self.completions or 0) else None

    def is_countable(self, pod: Object) -> bool:
        """Whether the pod's end is still to be counted. The finalizer is removed afterwards."""
        return is_tracked(pod) and (not self.is_indexed or self.index_of(pod) is not None)


def annotation(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))


def is_terminating_active(pod: Object) -> bool:
    return not has_ended(pod) and is_terminating(pod)


def is_tracked(pod: Object) -> bool:
    return labels.TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())


def uid(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def number(pod: Object, name: str) -> int:
    """A number in an annotation; 0 if it is not a number."""
    text = annotation(pod, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def deletion_order(pods: Iterable[Object]) -> list[Object]:
    """The order in which pods are deleted: those that have made the least progress first."""
    return sorted(pods, key=_progress)


def _progress(pod: Object) -> tuple[Any, ...]:
    spec = pod.get("spec") or {}
    stage = {"Pending": 0, "Unknown": 1, "Running": 2}.get(phase(pod), 0)
    created = pod["metadata"].get("creationTimestamp") or ""
    # Of two equal pods the younger goes first. Timestamps have equal lengths, so negated characters reverse the order.
    youngest_first = tuple(-ord(letter) for letter in created)
    return bool(spec.get("nodeName")), stage, is_ready(pod), -container_restarts(pod), youngest_first
