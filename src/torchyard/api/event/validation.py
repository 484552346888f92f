"""Validation of events. Events with an eventTime have the newer form, which requires more fields."""

from __future__ import annotations

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

_SHORT = 128
_NOTE = 1024
_TYPES = ("Normal", "Warning")
_SHORTEST_SERIES = 2
# Of the earlier form, by their names in core/v1, as in upstream's errors.
_DEPRECATED = ("firstTimestamp", "lastTimestamp", "count", "source")
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
    errs += [field_errors.invalid(name, "", "needs to be unset") for name in _DEPRECATED if event.get(name)]
    _check_series(event, errs)
    return errs


def _check_series(event: Object, errs: list[FieldError]) -> None:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < _SHORTEST_SERIES:
        errs.append(field_errors.invalid("series.count", "", f"should be at least {_SHORTEST_SERIES}"))
    if not series.get("lastObservedTime"):
        errs.append(field_errors.required("series.lastObservedTime"))


def validate_new_event_update(new: Object, old: Object) -> list[FieldError]:
    """Validate an update through events.k8s.io/v1: only the series may change."""
    errs = validate_event(new, reporter_field="reportingController")
    for name in _FIXED:
        field = "reportingController" if name == "reportingComponent" else name
        checks.immutable(new.get(name), old.get(name), field, errs)
    _check_series(new, errs)
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
