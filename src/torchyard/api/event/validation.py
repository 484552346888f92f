"""Validation of events. Events with an eventTime have the newer form, which requires more fields."""

from __future__ import annotations

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

_SHORT = 128
_NOTE = 1024
_TYPES = ("Normal", "Warning")
_DEPRECATED = {
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "source": "deprecatedSource",
}
_FIXED = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime"),
    *("action", "related", "reportingComponent", "reportingInstance"),
)
_NO_MATCH = "does not match event.namespace"


def default_event(event: Object) -> None:
    """Write the fields that Go writes even if they are empty; clients in typed languages rely on them."""
    event.setdefault("source", {})
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(name, None)
    for name in ("reportingComponent", "reportingInstance"):
        if event.get(name) is None:
            event[name] = ""


def validate_new_event(event: Object) -> list[FieldError]:
    """Validate an event created through events.k8s.io/v1, which must have every field of the newer form."""
    errs = validate_event(event, reporter_field="reportingController")
    if not event.get("eventTime"):
        errs.append(field_errors.required("eventTime"))
    if event.get("type") not in _TYPES:
        errs.append(field_errors.invalid("type", "", f"has invalid value: {event.get('type') or ''}"))
    for name, deprecated in _DEPRECATED.items():
        if event.get(name):
            errs.append(field_errors.invalid(deprecated, "", "needs to be unset"))
    return errs


def validate_new_event_update(new: Object, old: Object) -> list[FieldError]:
    """Validate an update through events.k8s.io/v1: only the series may change."""
    errs = validate_event(new, reporter_field="reportingController")
    for name in _FIXED:
        field = "reportingController" if name == "reportingComponent" else name
        checks.immutable(new.get(name), old.get(name), field, errs)
    return errs


def validate_event(event: Object, *, reporter_field: str = "reportingComponent") -> list[FieldError]:
    errs: list[FieldError] = []
    namespace = event["metadata"].get("namespace") or ""
    involved = (event.get("involvedObject") or {}).get("namespace") or ""
    if not event.get("eventTime"):
        wrong = namespace not in ("", "default") if not involved else namespace != involved
        if wrong:
            errs.append(field_errors.invalid("involvedObject.namespace", involved, _NO_MATCH))
        return errs
    if not involved and namespace not in ("default", "kube-system"):
        errs.append(field_errors.invalid("involvedObject.namespace", involved, _NO_MATCH))
    reporter = event.get("reportingComponent") or ""
    if not reporter:
        errs.append(field_errors.required(reporter_field))
    checks.report_problems(names.qualified_name_problems(reporter), reporter_field, reporter, errs)
    for field in ("reportingInstance", "action", "reason"):
        text = event.get(field) or ""
        if not text:
            errs.append(field_errors.required(field))
        if len(text) > _SHORT:
            errs.append(field_errors.invalid(field, "", f"can have at most {_SHORT} characters"))
    if len(event.get("message") or "") > _NOTE:
        errs.append(field_errors.invalid("message", "", f"can have at most {_NOTE} characters"))
    return errs
