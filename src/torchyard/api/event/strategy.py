"""Strategies of events in both API groups."""

from __future__ import annotations

from torchyard.api.event import validation
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.strategy import Strategy


def _about(obj: Object, field: str) -> dict[str, str]:
    """Return the selectable fields of the object that an event is about. The event has its stored form, core/v1."""
    involved = obj.get("involvedObject") or {}
    names = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    return {f"{field}.{name}": involved.get(name) or "" for name in names}


class EventStrategy(Strategy):
    qualified_finalizers = False
    create_on_update = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        validation.default_event(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_event(obj)

    def selectable(self, obj: Object) -> dict[str, str]:
        source = (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""
        return {
            **_about(obj, "involvedObject"),
            "reason": obj.get("reason") or "",
            "reportingComponent": obj.get("reportingComponent") or "",
            "source": source,
            "type": obj.get("type") or "",
        }


class EventsV1Strategy(EventStrategy):
    """Events with the field names of events.k8s.io/v1."""

    qualified_finalizers = True

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_new_event(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_new_event_update(new, old)

    def selectable(self, obj: Object) -> dict[str, str]:
        return {
            **_about(obj, "regarding"),
            "reason": obj.get("reason") or "",
            "reportingController": obj.get("reportingComponent") or "",
            "type": obj.get("type") or "",
        }
