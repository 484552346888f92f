"""What is valid in an event. Events with an eventTime are the newer kind and must say more."""

from __future__ import annotations

from torchyard.api import checks, faults, names
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault

_SHORT = 128
_NOTE = 1024
_NO_MATCH = "does not match event.namespace"


def default_event(event: Object) -> None:
    """What Go writes even where it is empty, because clients in typed languages count on it."""
    event.setdefault("source", {})
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(name, None)
    for name in ("reportingComponent", "reportingInstance"):
        if event.get(name) is None:
            event[name] = ""


def validate_event(event: Object) -> list[Fault]:
    found: list[Fault] = []
    namespace = event["metadata"].get("namespace") or ""
    involved = (event.get("involvedObject") or {}).get("namespace") or ""
    if not event.get("eventTime"):
        wrong = namespace not in ("", "default") if not involved else namespace != involved
        if wrong:
            found.append(faults.invalid("involvedObject.namespace", involved, _NO_MATCH))
        return found
    if not involved and namespace not in ("default", "kube-system"):
        found.append(faults.invalid("involvedObject.namespace", involved, _NO_MATCH))
    reporter = event.get("reportingComponent") or ""
    if not reporter:
        found.append(faults.required("reportingComponent"))
    checks.told(names.qualified_name_problems(reporter), "reportingComponent", reporter, found)
    for field in ("reportingInstance", "action", "reason"):
        text = event.get(field) or ""
        if not text:
            found.append(faults.required(field))
        if len(text) > _SHORT:
            found.append(faults.invalid(field, "", f"can have at most {_SHORT} characters"))
    if len(event.get("message") or "") > _NOTE:
        found.append(faults.invalid("message", "", f"can have at most {_NOTE} characters"))
    return found
