"""A case, what is said about it, and how two verdicts differ."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from torchyard.api.builtins import builtin_resources
from torchyard.api.objects import Object
from torchyard.api.resources import Resource

Part = Literal["", "status", "ephemeralcontainers", "resize"]


@dataclass(frozen=True)
class Case:
    """An object to create; with `change`, one to create and then to change by the main or another endpoint."""

    name: str
    obj: Object
    change: Callable[[Object], None] | None = None
    part: Part = ""
    # what is different on purpose: the path, and why
    unlike: tuple[str, str] | None = None


@dataclass
class Verdict:
    """Accepted with this object and these warnings, or refused for these causes."""

    accepted: bool
    causes: list[tuple[str, str, str]] = field(default_factory=list)
    obj: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    said: str = ""


def resource_of(obj: Object) -> Resource:
    return next(one for one in builtin_resources() if one.api_version == obj["apiVersion"] and one.kind == obj["kind"])


_uid = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_value = re.compile(r"^(Invalid value|Duplicate value|Unsupported value): [\[{].*[\]}](?=: |$)", re.DOTALL)
_time = re.compile(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"')
_OWN_METADATA = ("labels", "annotations", "finalizers")


def comparable_message(message: str) -> str:
    """Structures are shown as users write them, not as upstream's internal types; a diff is only its first line."""
    return _uid.sub("UID", _value.sub(r"\1: …", message.split("\n", maxsplit=1)[0]))


def _without_empty(value: Any) -> Any:
    """Absent, null and empty are one and the same to Go's encoder; numbers and false are kept."""
    if isinstance(value, dict):
        pairs = {key: _without_empty(one) for key, one in value.items()}
        return {key: one for key, one in pairs.items() if one not in (None, "", [], {})}
    if isinstance(value, list):
        return [_without_empty(one) for one in value]
    return value


def comparable_object(obj: Object) -> Any:
    """All that rules decide: no names, versions and times, which every server gives in its own way."""
    # Jobs write their uid, which no two servers share, all over themselves
    uid = obj.get("metadata", {}).get("uid") or "-"
    comparable = json.loads(_time.sub('"TIME"', json.dumps(obj).replace(uid, "UID")))
    comparable["metadata"] = {key: comparable["metadata"].get(key) for key in _OWN_METADATA}
    if obj["kind"] == "Service" and comparable["spec"].get("clusterIP") != "None":
        # allocated once the service was found valid
        for name in ("clusterIP", "clusterIPs"):
            comparable["spec"].pop(name, None)
    return _without_empty({key: value for key, value in comparable.items() if key not in ("apiVersion", "kind")})


def _told_apart(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two objects differ, path by path."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [*theirs, *(key for key in ours if key not in theirs)]
        return [line for key in keys for line in _told_apart(ours.get(key), theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for index, (one, other) in pairs for line in _told_apart(one, other, f"{path}[{index}]")]
    return [] if ours == theirs else [f"{path}: ours {ours!r}, theirs {theirs!r}"]


def differences(case: Case, ours: Verdict, theirs: Verdict) -> list[str]:
    """Every difference that is not on purpose. Go's maps have no order, so neither have causes."""
    found = _differences(ours, theirs)
    if case.unlike is not None:
        path, why = case.unlike
        assert any(path in line for line in found), f"no longer different, so not to be excused by: {why}"
        found = [line for line in found if path not in line]
    return found


def _differences(ours: Verdict, theirs: Verdict) -> list[str]:
    if ours.accepted != theirs.accepted:
        return [f"ours accepted: {ours.accepted} {ours.said}", f"theirs accepted: {theirs.accepted} {theirs.said}"]
    if not ours.accepted:
        missing = [f"not told by us: {cause}" for cause in theirs.causes if cause not in ours.causes]
        invented = [f"told by us only: {cause}" for cause in ours.causes if cause not in theirs.causes]
        fewer = len(ours.causes) != len(theirs.causes) and not missing and not invented
        return missing + invented + ([f"{len(ours.causes)} causes, not {len(theirs.causes)}"] if fewer else [])
    found = _told_apart(ours.obj, theirs.obj)
    found += [f"not warned by us: {line}" for line in theirs.warnings if line not in ours.warnings]
    return found + [f"warned by us only: {line}" for line in ours.warnings if line not in theirs.warnings]
