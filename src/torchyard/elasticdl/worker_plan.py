"""Which worker pods to make: a pure function of what is wanted, what is there, and how earlier ones ended.

ElasticDL started none again after an exception, an eviction or a lack of memory. Here a worker that was taken away is
always replaced, and one that failed is replaced until failing is all they do.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.objects import Object

TAKEN_AWAY = (137, 143)
"""Exit codes of programs that others ended: SIGKILL and SIGTERM."""
FAILURES_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """How a pod ended, in a sentence, and whether that was its own doing."""

    own_error: bool
    words: str


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    create: int = 0
    failed: str = ""


def is_over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def ending(pod: Object) -> PodOutcome:
    status = pod.get("status") or {}
    name = pod["metadata"]["name"]
    if status.get("reason") in ("Evicted", "Preempting", "NodeLost", "Shutdown", "NodeShutdown"):
        return PodOutcome(False, f"{name} was taken away: {status['reason']} {status.get('message', '')}".strip())
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        code, reason = ended.get("exitCode", 0), ended.get("reason", "")
        if reason == "OOMKilled":
            return PodOutcome(True, f"{name} ran out of memory; raise --worker_resource_limit")
        if code:
            return PodOutcome(code not in TAKEN_AWAY, f"{name} ended with code {code} {reason}".strip())
    return PodOutcome(False, f"{name} ended")


def plan(wanted: int, pods: list[Object], *, own_errors: int, relaunch: bool) -> WorkerPlan:
    """`own_errors` counts failures since a step was last made; a job whose workers only fail is given up."""
    if own_errors >= FAILURES_IN_A_ROW:
        return WorkerPlan(failed=f"{own_errors} workers in a row failed before a step was made")
    alive = [pod for pod in pods if not is_over(pod) and not is_leaving(pod)]
    missing = max(0, wanted - len(alive))
    ended = len(pods) - len(alive)
    if not relaunch and ended:
        # Those that are gone stay gone: only what never was may still be made.
        missing = max(0, wanted - len(pods))
        if not alive and not missing:
            return WorkerPlan(failed="all workers have ended, and --aux_params says disable_relaunch")
    return WorkerPlan(create=missing)
