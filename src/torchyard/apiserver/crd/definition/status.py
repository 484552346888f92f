"""The status of a CRD: its accepted names, whether it is established, and its stored versions.

The real server computes this in controllers, moments after the write. Here a new CRD gets it by a second write before
the request ends, and a changed one as part of its write.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from torchyard.api import field_errors
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.crd.definition.api_approval import approval_condition

# Keeps a CRD until all its objects are deleted.
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_NAMES = ("plural", "singular", "kind", "listKind")


def initial_status(crd: Object) -> None:
    """The status of a new CRD, before its names are accepted."""
    storage = [version["name"] for version in (crd.get("spec") or {}).get("versions") or () if version.get("storage")]
    crd["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": storage[:1]}


def carry_over_status(new: Object, old: Object) -> None:
    """The status of a changed CRD: the old status, plus the current storage version."""
    status = dict(old.get("status") or {})
    stored = list(status.get("storedVersions") or ())
    for version in (new.get("spec") or {}).get("versions") or ():
        if version.get("storage") and version.get("name") not in stored:
            stored.append(version["name"])
    new["status"] = {**status, "storedVersions": stored}


def accept_names(crd: Object, others: Iterable[Object], now: datetime) -> bool:
    """Accept the names that no other CRD of the group uses, and establish the CRD; returns whether its status changed.

    Call this when a CRD is created or changed. After a CRD was deleted or changed, call it for those of its group whose
    names are not accepted.
    """
    spec, status = crd["spec"], crd.setdefault("status", {})
    before = {**status, "conditions": [dict(entry) for entry in status.get("conditions") or ()]}
    accepted, conflict = _accepted(spec, status.get("acceptedNames") or {}, others)
    status["acceptedNames"] = accepted
    if conflict is None:
        set_condition(crd, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now=now)
    else:
        set_condition(crd, "NamesAccepted", "False", *conflict, now=now)
    if conflict is None:
        message = "the initial names have been accepted"
        if not has_condition(crd, "Established"):
            set_condition(crd, "Established", "True", "InitialNamesAccepted", message, now=now)
    elif condition(crd, "Established") is None:
        set_condition(crd, "Established", "False", "NotAccepted", "not all names are accepted", now=now)
    approval = approval_condition(crd)
    if approval is not None:
        set_condition(crd, *approval, now=now)
    return bool(status != before)


def _accepted(spec: Object, accepted: Object, others: Iterable[Object]) -> tuple[Object, tuple[str, str] | None]:
    """The accepted names, and the last conflict, if any."""
    requested = spec["names"]
    resources, kinds = _names_in_use(spec["group"], others)
    for name in (accepted.get("plural"), accepted.get("singular"), *(accepted.get("shortNames") or ())):
        resources.add(name)
    kinds.update((accepted.get("kind"), accepted.get("listKind")))
    result = dict(accepted)
    conflict: tuple[str, str] | None = None
    for key in _NAMES:
        name = requested.get(key)
        if name != accepted.get(key) and name in (kinds if key in ("kind", "listKind") else resources):
            conflict = f"{key[0].upper()}{key[1:]}Conflict", f"{field_errors.format_value(name)} is already in use"
        else:
            result[key] = name
        if key == "singular":
            conflict = _accept_short_names(requested, accepted, resources, result) or conflict
    result.pop("categories", None)
    if requested.get("categories"):
        result["categories"] = requested["categories"]
    ordered = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
    return {key: result[key] for key in ordered if key in result}, conflict


def _accept_short_names(requested: Object, accepted: Object, taken: set[Any], result: Object) -> tuple[str, str] | None:
    names = requested.get("shortNames") or []
    accepted_names = accepted.get("shortNames") or []
    clashes = [name for name in names if name not in accepted_names and name in taken]
    if clashes:
        messages = [f"{field_errors.format_value(name)} is already in use" for name in clashes]
        return "ShortNamesConflict", messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    result.pop("shortNames", None)
    if names:
        result["shortNames"] = names
    return None


def _names_in_use(group: str, others: Iterable[Object]) -> tuple[set[Any], set[Any]]:
    resources: set[Any] = set()
    kinds: set[Any] = set()
    for other in others:
        if other["spec"]["group"] != group:
            continue
        names = (other.get("status") or {}).get("acceptedNames") or {}
        resources.update((names.get("plural"), names.get("singular"), *(names.get("shortNames") or ())))
        kinds.update((names.get("kind"), names.get("listKind")))
    return resources - {None, ""}, kinds - {None, ""}


def mark_terminating(crd: Object, now: datetime) -> None:
    """Mark a CRD as terminating; its objects are deleted first."""
    finalizers = crd["metadata"].setdefault("finalizers", [])
    if CLEANUP_FINALIZER not in finalizers:
        finalizers.append(CLEANUP_FINALIZER)
    message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    set_condition(crd, "Terminating", "True", "InstanceDeletionPending", message, now=now)


def finish_termination(crd: Object, now: datetime) -> None:
    """Remove the finalizer after all objects are deleted."""
    crd["metadata"]["finalizers"] = [
        name for name in crd["metadata"].get("finalizers") or () if name != CLEANUP_FINALIZER
    ]
    message = "removed all instances"
    set_condition(crd, "Terminating", "False", "InstanceDeletionCompleted", message, now=now)


def condition(crd: Object, kind: str) -> Object | None:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return next((entry for entry in conditions if entry.get("type") == kind), None)


def has_condition(crd: Object, kind: str) -> bool:
    entry = condition(crd, kind)
    return entry is not None and entry.get("status") == "True"


def is_established(crd: Object) -> bool:
    return has_condition(crd, "Established")


def is_terminating(crd: Object) -> bool:
    return has_condition(crd, "Terminating")


def set_condition(crd: Object, kind: str, value: str, reason: str, message: str, *, now: datetime) -> None:
    """Set a condition; lastTransitionTime changes only with the status."""
    status = crd.setdefault("status", {})
    conditions = status["conditions"] = list(status.get("conditions") or ())
    updated = {
        "type": kind,
        "status": value,
        "lastTransitionTime": to_rfc3339(now),
        "reason": reason,
        "message": message,
    }
    for index, entry in enumerate(conditions):
        if entry.get("type") == kind:
            if entry.get("status") == value:
                updated["lastTransitionTime"] = entry.get("lastTransitionTime") or updated["lastTransitionTime"]
            conditions[index] = updated
            return
    conditions.append(updated)
