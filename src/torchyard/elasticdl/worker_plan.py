"""Decides how many worker pods to create: a pure function of the target, the present pods and their failures.

ElasticDL does not restart a worker after an exception, an eviction or an out-of-memory kill. Here a worker that was
evicted or killed is always replaced, and one that failed is replaced until three fail in a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended

KILLED_EXIT_CODES = (137, 143)
"""Exit codes of programs that SIGKILL or SIGTERM ended."""
FAILURES_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """How a pod ended, and whether its own program is at fault."""

    own_error: bool
    message: str


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """How many pods to create, or why the job has failed."""

    create: int = 0
    failed: str = ""


def is_deleted(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def pod_outcome(pod: Object) -> PodOutcome:
    status = pod.get("status") or {}
    name = pod["metadata"]["name"]
    if status.get("reason") in ("Evicted", "Preempting", "NodeLost", "Shutdown", "NodeShutdown"):
        return PodOutcome(False, f"{name} was evicted: {status['reason']} {status.get('message', '')}".strip())
    for container in status.get("containerStatuses") or ():
        terminated = (container.get("state") or {}).get("terminated") or {}
        code, reason = terminated.get("exitCode", 0), terminated.get("reason", "")
        if reason == "OOMKilled":
            return PodOutcome(True, f"{name} ran out of memory; raise --worker_resource_limit")
        if code:
            return PodOutcome(code not in KILLED_EXIT_CODES, f"{name} ended with code {code} {reason}".strip())
    return PodOutcome(False, f"{name} ended")


def plan(target: int, pods: list[Object], *, own_errors: int, relaunch: bool) -> WorkerPlan:
    """Decide how many pods to create.

    Args:
        target: the number of workers that the job should have.
        pods: the worker pods, including those that have ended.
        own_errors: how many workers have failed since the last applied step.
        relaunch: whether a worker that has ended is replaced.
    """
    if own_errors >= FAILURES_IN_A_ROW:
        return WorkerPlan(failed=f"{own_errors} workers in a row failed before the next step")
    alive = [pod for pod in pods if not has_ended(pod) and not is_deleted(pod)]
    missing = max(0, target - len(alive))
    terminated = len(pods) - len(alive)
    if not relaunch and terminated:
        # Pods that have ended are not replaced: create only those that never existed.
        missing = max(0, target - len(pods))
        if not alive and not missing:
            return WorkerPlan(failed="all workers have ended, and --aux_params contains disable_relaunch=true")
    return WorkerPlan(create=missing)
