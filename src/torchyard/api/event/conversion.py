"""Conversion of an event between core/v1, the stored form, and events.k8s.io/v1."""

from __future__ import annotations

from torchyard.api.objects import Object

# events.k8s.io/v1 -> core/v1; fields with the same name in both are not listed
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
# fields that core/v1 always writes and events.k8s.io/v1 omits when they are empty
_ALWAYS = ("reportingController", "reportingInstance")


def to_core(event: Object) -> Object:
    """Convert an event from events.k8s.io/v1 to core/v1."""
    return {_RENAMED.get(name, name): value for name, value in event.items()}


def from_core(event: Object) -> Object:
    """Convert an event from core/v1 to events.k8s.io/v1."""
    renamed = {_BACK.get(name, name): value for name, value in event.items()}
    return {name: value for name, value in renamed.items() if value or name not in _ALWAYS}
