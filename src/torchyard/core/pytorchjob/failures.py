"""Pods that failed: which end the job, which are made anew, and how often that may happen."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.core.pytorchjob.view import (
    PyTorchJobView,
    Restarts,
    container_restarts,
    exit_code,
    is_terminating,
    phase,
)


def is_retryable(code: int | None) -> bool:
    """Death by a signal may pass next time, an error of the program will not. An unknown code counts as a signal."""
    return code is None or code >= 128


@dataclass(slots=True)
class Failures:
    retryable: dict[str, list[Object]] = field(default_factory=dict)  # by replica type: failed pods to be made anew
    permanent: str = ""  # the replica type that failed for good

    @classmethod
    def of(cls, view: PyTorchJobView) -> Failures:
        failures = cls()
        for slot, pod in view.pods.items():
            kind = slot[0]
            if phase(pod) != "Failed" or is_terminating(pod) or not view.has_slot(slot):
                continue
            policy = view.replicas[kind]["restartPolicy"]
            if policy == names.NEVER:
                continue
            if policy == names.EXIT_CODE and not is_retryable(exit_code(pod)):
                failures.permanent = failures.permanent or kind
            else:
                failures.retryable.setdefault(kind, []).append(pod)
        return failures

    def pods(self) -> list[Object]:
        return [pod for pods in self.retryable.values() for pod in pods]

    def _new(self, view: PyTorchJobView) -> list[Object]:
        counted = Restarts.of(view.job).pods
        return [pod for pod in self.pods() if pod["metadata"]["uid"] not in counted]

    def counted(self, view: PyTorchJobView) -> Restarts | None:
        """The job's memory with the new failures in it; None where there are none.

        It is written before a pod is deleted, so that no restart is forgotten or counted twice if the controller dies
        in between. A restart of the whole job counts once, however many replicas fell with it.
        """
        new = self._new(view)
        if not new:
            return None
        before = Restarts.of(view.job)
        existing = {pod["metadata"]["uid"] for pod in view.pods.values()}
        pods = [uid for uid in before.pods if uid in existing] + [pod["metadata"]["uid"] for pod in new]
        return Restarts(before.count + self.cost(view), tuple(pods))

    def cost(self, view: PyTorchJobView) -> int:
        new = self._new(view)
        if view.restarts_whole:
            return 1 if new else 0
        return sum(1 + container_restarts(pod) for pod in new)


def is_past_backoff(view: PyTorchJobView, failures: Failures) -> bool:
    """Restarts in place and pods made anew together, as upstream sums them: over all replicas.

    Upstream forgets pods it made anew, so that a job with ExitCode restarts for ever.
    """
    limit = view.run_policy.get("backoffLimit")
    if limit is None:
        return False
    in_place = sum(
        container_restarts(pod)
        for (kind, index), pod in view.pods.items()
        if view.has_slot((kind, index))
        and phase(pod) in ("Running", "Pending")
        and view.replicas[kind]["restartPolicy"] != names.NEVER
    )
    total = in_place + Restarts.of(view.job).count + failures.cost(view)
    return total > 0 if limit == 0 else total >= limit
