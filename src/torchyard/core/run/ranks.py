"""The replicas of a job: their ranks, and which of them a user names."""

from __future__ import annotations

from collections.abc import Collection

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.core.run.state import short_name

_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_NO_RANK = 1 << 30  # behind all others


def rank_of(pod: Object) -> int | None:
    """The rank that the pod's environment names (`RANK`), or its completion index; None if it has neither."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for variable in container.get("env") or ():
            if variable["name"] == "RANK" and (rank := _number(str(variable.get("value") or ""))) is not None:
                return rank
    return _number((pod["metadata"].get("annotations") or {}).get(_COMPLETION_INDEX, ""))


def rank_by_name(job: Object, pod: str) -> int | None:
    """The rank of a pod that no longer exists, from its name; None if its job does not name pods by rank."""
    kind, name = job["kind"], short_name(pod, str(job["metadata"]["name"]))
    if kind == "Job" and job["spec"].get("completionMode") == "Indexed":
        return _number(name.partition("-")[0])
    if kind == "PyTorchJob":
        role, _, text = name.rpartition("-")
        index = _number(text)
        masters = 1 if "Master" in job["spec"]["pytorchReplicaSpecs"] else 0
        first = {"master": 0, "worker": masters}.get(role)
        return first + index if first is not None and index is not None else None
    return None


def _number(text: str) -> int | None:
    """The number that a user may have written; None if it is not one that a rank can be."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def is_named(pod: Object, job: str, names: Collection[str]) -> bool:
    """Whether one of the names is the pod's rank or its replica, such as `worker-0`."""
    return any(name in _names(pod, job) for name in names)


def choose_replicas(pods: list[Object], job: str, names: Collection[str] = ()) -> list[Object]:
    """The pods that have one of the names, or all, in the order of their ranks.

    Raises YardError for a name that no pod has.
    """
    ordered = sorted(pods, key=_order)
    known = {name for pod in ordered for name in _names(pod, job)}
    for name in names:
        if name not in known:
            ranks = ", ".join("/".join(_names(pod, job)) for pod in ordered) or "none yet"
            raise YardError(f"{job} has no rank {name}", hint=f"its ranks are {ranks}", code="NotFound")
    return [pod for pod in ordered if not names or is_named(pod, job, names)]


def _order(pod: Object) -> tuple[int, str]:
    rank = rank_of(pod)
    return (_NO_RANK if rank is None else rank), str(pod["metadata"]["name"])


def _names(pod: Object, job: str) -> list[str]:
    """Its rank, its name, and its name without the suffix that the server gave to it."""
    metadata, rank = pod["metadata"], rank_of(pod)
    generated = str(metadata.get("generateName") or "").rstrip("-")
    names = [str(metadata["name"]), *([generated] if generated.startswith(f"{job}-") else [])]
    return [*([] if rank is None else [str(rank)]), *(short_name(name, job) for name in names)]
