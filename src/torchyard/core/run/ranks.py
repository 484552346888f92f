"""The rank of a replica within its job."""

from __future__ import annotations

from torchyard.api.objects import Object

_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def rank_of(pod: Object) -> int | None:
    """The rank that the pod's environment names (`RANK`), or its completion index; None if it has neither."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for variable in container.get("env") or ():
            if variable["name"] == "RANK" and str(variable.get("value", "")).isdigit():
                return int(variable["value"])
    index = (pod["metadata"].get("annotations") or {}).get(_COMPLETION_INDEX, "")
    return int(index) if index.isdigit() else None
