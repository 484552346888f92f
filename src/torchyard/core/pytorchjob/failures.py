"""Failed pods: which fail the job, which are recreated, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import container_restarts, phase
from torchyard.api.pytorchjob import names
from torchyard.core.pytorchjob.view import PyTorchJobView, Restarts, exit_code


def is_retryable(code: int | None) -> bool:
    """An exit by a signal may succeed next time, a program error will not. An unknown code counts as a signal."""
    return code is None or code >= 128


@dataclass(slots=True)
class Failures:
    retryable: dict[str, list[Object]] = field(default_factory=dict)  # failed pods to recreate, by replica type
    permanent: str = ""  # the replica type with a permanent failure

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
        """The restart count with the new failures; None if there are none.

        It is written before a pod is deleted, so that a crash in between neither loses a restart nor counts it twice. A
        restart of the whole job counts once, however many replicas failed.
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
    """Whether container restarts and recreated pods together exceed the backoff limit, summed over all replicas.

    Upstream does not count recreated pods, so that a job with ExitCode restarts forever.
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
