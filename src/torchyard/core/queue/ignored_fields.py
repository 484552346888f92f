"""Fields of queues that have no effect with the settings of this plane."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.queue import configuration_messages, names
from torchyard.core.queue.settings import QueueSettings

# By kind: the setting that its spec.fairSharing needs.
_SETTING_OF_WEIGHT = {
    names.CLUSTER_QUEUE.kind: "fairSharing",
    names.COHORT.kind: "fairSharing",
    names.LOCAL_QUEUE.kind: "admissionFairSharing",
}


def ignored_fields(kind: str, spec: Object, settings: QueueSettings) -> list[str]:
    """A message for each field of a queue or cohort that is set but ignored."""
    is_enabled = {
        "fairSharing": settings.fair_sharing is not None,
        "admissionFairSharing": settings.admission_fair_sharing is not None,
    }
    needed: dict[str, str] = {}  # settings by field
    if spec.get("fairSharing"):
        needed["spec.fairSharing"] = _SETTING_OF_WEIGHT[kind]
    if (spec.get("admissionScope") or {}).get("admissionMode") == names.USAGE_BASED:
        needed["spec.admissionScope.admissionMode"] = "admissionFairSharing"
    return [
        configuration_messages.field_ignored(field, setting)
        for field, setting in needed.items()
        if not is_enabled[setting]
    ]
