"""One event, two spellings: core/v1, in which it is kept, and events.k8s.io/v1."""

from __future__ import annotations

from torchyard.api.objects import Object

# events.k8s.io/v1 -> core/v1; fields of the same name are not listed
_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in _RENAMED.items()}
# what core/v1 always writes, and events.k8s.io/v1 leaves out where it is empty
_ALWAYS = ("reportingController", "reportingInstance")


def to_core(event: Object) -> Object:
    """An events.k8s.io/v1 event as core/v1 writes it."""
    return {_RENAMED.get(name, name): value for name, value in event.items()}


def from_core(event: Object) -> Object:
    """A core/v1 event as events.k8s.io/v1 writes it."""
    renamed = {_BACK.get(name, name): value for name, value in event.items()}
    return {name: value for name, value in renamed.items() if value or name not in _ALWAYS}
