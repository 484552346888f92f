"""The status of a definition: which names it got, whether it is served, which versions objects may be stored in.

The real server settles this in controllers, moments after the write; here it is settled in the write itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from torchyard.api import field_errors
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.crd.definition.api_approval import approval_condition

# Keeps a definition until its objects are gone.
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_NAMES = ("plural", "singular", "kind", "listKind")


def initial_status(crd: Object) -> None:
    """The status of a new definition, before its names are looked at."""
    storage = [one["name"] for one in (crd.get("spec") or {}).get("versions") or () if one.get("storage")]
    crd["status"] = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": storage[:1]}


def carry_over_status(new: Object, old: Object) -> None:
    """The status of a changed definition: the old one, and the storage version it has now."""
    status = dict(old.get("status") or {})
    stored = list(status.get("storedVersions") or ())
    for version in (new.get("spec") or {}).get("versions") or ():
        if version.get("storage") and version.get("name") not in stored:
            stored.append(version["name"])
    new["status"] = {**status, "storedVersions": stored}


def accept_names(crd: Object, others: Iterable[Object], now: datetime) -> bool:
    """Accept the names that no definition of the group has, and establish it; whether the status changed.

    To be called when a definition is created or changed, and for those of its group whose names are not accepted
    when one goes.
    """
    spec, status = crd["spec"], crd.setdefault("status", {})
    before = {**status, "conditions": [dict(one) for one in status.get("conditions") or ()]}
    accepted, conflict = _accepted(spec, status.get("acceptedNames") or {}, others)
    status["acceptedNames"] = accepted
    if conflict is None:
        set_condition(crd, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now=now)
    else:
        set_condition(crd, "NamesAccepted", "False", *conflict, now=now)
    if conflict is None:
        said = "the initial names have been accepted"
        if not has_condition(crd, "Established"):
            set_condition(crd, "Established", "True", "InitialNamesAccepted", said, now=now)
    elif condition(crd, "Established") is None:
        set_condition(crd, "Established", "False", "NotAccepted", "not all names are accepted", now=now)
    approval = approval_condition(crd)
    if approval is not None:
        set_condition(crd, *approval, now=now)
    return bool(status != before)


def _accepted(spec: Object, accepted: Object, others: Iterable[Object]) -> tuple[Object, tuple[str, str] | None]:
    """The names a definition gets, and the last conflict, if any."""
    wanted = spec["names"]
    resources, kinds = _taken(spec["group"], others)
    for own in (accepted.get("plural"), accepted.get("singular"), *(accepted.get("shortNames") or ())):
        resources.add(own)
    kinds.update((accepted.get("kind"), accepted.get("listKind")))
    result = dict(accepted)
    conflict: tuple[str, str] | None = None
    for key in _NAMES:
        name = wanted.get(key)
        if name != accepted.get(key) and name in (kinds if key in ("kind", "listKind") else resources):
            conflict = f"{key[0].upper()}{key[1:]}Conflict", f"{field_errors.format_value(name)} is already in use"
        else:
            result[key] = name
        if key == "singular":
            conflict = _accept_short_names(wanted, accepted, resources, result) or conflict
    result.pop("categories", None)
    if wanted.get("categories"):
        result["categories"] = wanted["categories"]
    ordered = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
    return {key: result[key] for key in ordered if key in result}, conflict


def _accept_short_names(wanted: Object, accepted: Object, taken: set[Any], result: Object) -> tuple[str, str] | None:
    names = wanted.get("shortNames") or []
    own = accepted.get("shortNames") or []
    clashes = [name for name in names if name not in own and name in taken]
    if clashes:
        said = [f"{field_errors.format_value(name)} is already in use" for name in clashes]
        return "ShortNamesConflict", said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    result.pop("shortNames", None)
    if names:
        result["shortNames"] = names
    return None


def _taken(group: str, others: Iterable[Object]) -> tuple[set[Any], set[Any]]:
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
    """Mark a definition on its way out: its objects go first."""
    finalizers = crd["metadata"].setdefault("finalizers", [])
    if CLEANUP_FINALIZER not in finalizers:
        finalizers.append(CLEANUP_FINALIZER)
    said = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    set_condition(crd, "Terminating", "True", "InstanceDeletionPending", said, now=now)


def finish_termination(crd: Object, now: datetime) -> None:
    """Its objects are gone: nothing keeps the definition any more."""
    crd["metadata"]["finalizers"] = [
        name for name in crd["metadata"].get("finalizers") or () if name != CLEANUP_FINALIZER
    ]
    said = "removed all instances"
    set_condition(crd, "Terminating", "False", "InstanceDeletionCompleted", said, now=now)


def condition(crd: Object, kind: str) -> Object | None:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), None)


def has_condition(crd: Object, kind: str) -> bool:
    found = condition(crd, kind)
    return found is not None and found.get("status") == "True"


def is_established(crd: Object) -> bool:
    return has_condition(crd, "Established")


def is_terminating(crd: Object) -> bool:
    return has_condition(crd, "Terminating")


def set_condition(crd: Object, kind: str, value: str, reason: str, message: str, *, now: datetime) -> None:
    """Set a condition; its time changes with its value only."""
    status = crd.setdefault("status", {})
    conditions = status["conditions"] = list(status.get("conditions") or ())
    fresh = {"type": kind, "status": value, "lastTransitionTime": to_rfc3339(now), "reason": reason, "message": message}
    for index, one in enumerate(conditions):
        if one.get("type") == kind:
            if one.get("status") == value:
                fresh["lastTransitionTime"] = one.get("lastTransitionTime") or fresh["lastTransitionTime"]
            conditions[index] = fresh
            return
    conditions.append(fresh)
