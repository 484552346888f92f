"""What is added to Kueue's messages about a pending workload: what is missing, who holds it, and what would help."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.queue import queue_messages
from torchyard.api.queue.messages import ReasonMessage

LOCAL_QUEUE_STOPPED_ADVICE = ": its stopPolicy is set"
WAITS_FOR_ITS_TURN = "enough quota is unused; it waits for its turn"
NEVER_FITS = "it can never fit"
NOT_EVALUATED = "the scheduler has not evaluated it yet"
CREATE_CLUSTER_QUEUE_HINT = (
    "; create it, or use a LocalQueue of another ClusterQueue: `kubectl get localqueues` shows the ClusterQueue of each"
)


def quota_held_for(cluster_queues: Iterable[str]) -> str:
    return (
        "; the quota left to borrow is reserved for the first pending workload of its owner, StrictFIFO ClusterQueue"
        f" {', '.join(sorted(cluster_queues))}"
    )


def waits_to_be_requeued(at: str) -> str:
    return f"it is queued again at {at}, because its pods were not ready in time"


def position_in_queue(position: int, cluster_queue: str) -> str:
    return f"position {position} in ClusterQueue {cluster_queue} (0 is next)"


def quota_missing(resource: str, flavor: str, requested: str, missing: str, used_by: Iterable[tuple[str, str]]) -> str:
    users = ", ".join(f"{name} ({amount})" for name, amount in used_by)
    text = f"{missing} of the requested {requested} {resource} are missing in flavor {flavor}"
    return f"{text}, used by {users}" if users else text


def quota_never_suffices(resource: str, flavor: str, requested: str, missing: str) -> str:
    return f"{requested} {resource} are {missing} more than its queue can ever have in flavor {flavor}"


def quota_held_by(workloads: Iterable[str]) -> str:
    return f"held by {', '.join(workloads)}"


def start_estimate(seconds: float, deviation: float) -> str:
    return f"likely to start in {seconds:.0f} s ± {deviation:.0f} s"


def available_queues(local_queues: Iterable[str]) -> str:
    names = ", ".join(sorted(local_queues))
    if not names:
        return "; this namespace has no LocalQueue; create one that refers to a ClusterQueue"
    return f"; LocalQueues in this namespace: {names}"


_INACTIVE_HINTS = {
    queue_messages.REASON_FLAVOR_NOT_FOUND: " Create it, or use one that `kubectl get resourceflavors` lists",
    queue_messages.REASON_CHECK_NOT_FOUND: " Create it, or use one that `kubectl get admissionchecks` lists",
}


def inactive_advice(inactive: ReasonMessage) -> str:
    """Why a ClusterQueue is inactive, with what to do where its condition does not say it."""
    return f": {inactive.message}{_INACTIVE_HINTS.get(inactive.reason, '')}"


def namespace_advice(cluster_queue: str) -> str:
    return f"; ClusterQueue {cluster_queue} does not select this namespace by its labels"


def never_fits(cluster_queue: str) -> str:
    return f"; it will never fit: request less, or raise the quota of ClusterQueue {cluster_queue}"


def gpu_products(products: Iterable[str]) -> str:
    return f"; this machine has {', '.join(sorted(products)) or 'no GPU'}"


# Parameters of the visibility API.
def invalid_count_parameter(name: str, value: str) -> str:
    return f"{name}={value!r} is not a number of workloads, 0 or more"
