"""A case, the verdict about it, and the differences between two verdicts."""

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
    """An object to create; with `change`, an object to create and then to update through an endpoint."""

    name: str
    obj: Object
    change: Callable[[Object], None] | None = None
    part: Part = ""
    # intended differences: the path, and the reason
    unlike: tuple[str, str] | None = None


@dataclass
class Verdict:
    """Accepted with this object and these warnings, or rejected with these causes."""

    accepted: bool
    causes: list[tuple[str, str, str]] = field(default_factory=list)
    obj: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    message: str = ""


def resource_of(obj: Object) -> Resource:
    return next(
        resource
        for resource in builtin_resources()
        if resource.api_version == obj["apiVersion"] and resource.kind == obj["kind"]
    )


_uid = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_value = re.compile(r"^(Invalid value|Duplicate value|Unsupported value): [\[{].*[\]}](?=: |$)", re.DOTALL)
_time = re.compile(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"')
_OWN_METADATA = ("labels", "annotations", "finalizers")


def comparable_message(message: str) -> str:
    """Remove from a message what cannot be equal: upstream's internal representation of structures, and details of a
    diff.
    """
    return _uid.sub("UID", _value.sub(r"\1: …", message.split("\n", maxsplit=1)[0]))


def _without_empty(value: Any) -> Any:
    """Drop absent, null and empty values, which are equal for Go's encoder; keep numbers and false."""
    if isinstance(value, dict):
        pairs = {key: _without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in pairs.items() if inner not in (None, "", [], {})}
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value


def comparable_object(obj: Object) -> Any:
    """Reduce an object to what rules decide: without names, versions and times, which differ between servers."""
    # Jobs contain their uid, which differs between servers, in several fields
    uid = obj.get("metadata", {}).get("uid") or "-"
    comparable = json.loads(_time.sub('"TIME"', json.dumps(obj).replace(uid, "UID")))
    comparable["metadata"] = {key: comparable["metadata"].get(key) for key in _OWN_METADATA}
    if obj["kind"] == "Service" and comparable["spec"].get("clusterIP") != "None":
        # allocated after validation
        for name in ("clusterIP", "clusterIPs"):
            comparable["spec"].pop(name, None)
    return _without_empty({key: value for key, value in comparable.items() if key not in ("apiVersion", "kind")})


def _object_differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Return the differences between two objects, path by path."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [*theirs, *(key for key in ours if key not in theirs)]
        return [line for key in keys for line in _object_differences(ours.get(key), theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for index, (left, other) in pairs for line in _object_differences(left, other, f"{path}[{index}]")]
    return [] if ours == theirs else [f"{path}: ours {ours!r}, theirs {theirs!r}"]


def differences(case: Case, ours: Verdict, theirs: Verdict) -> list[str]:
    """Return every unintended difference. Causes have no order, because Go's maps have none."""
    lines = _differences(ours, theirs)
    if case.unlike is not None:
        path, why = case.unlike
        assert any(path in line for line in lines), f"no longer different, so not to be excused by: {why}"
        lines = [line for line in lines if path not in line]
    return lines


def _differences(ours: Verdict, theirs: Verdict) -> list[str]:
    if ours.accepted != theirs.accepted:
        return [
            f"ours accepted: {ours.accepted} {ours.message}",
            f"theirs accepted: {theirs.accepted} {theirs.message}",
        ]
    if not ours.accepted:
        missing = [f"missing in ours: {cause}" for cause in theirs.causes if cause not in ours.causes]
        invented = [f"only in ours: {cause}" for cause in ours.causes if cause not in theirs.causes]
        fewer = len(ours.causes) != len(theirs.causes) and not missing and not invented
        return missing + invented + ([f"{len(ours.causes)} causes, not {len(theirs.causes)}"] if fewer else [])
    lines = _object_differences(ours.obj, theirs.obj)
    lines += [f"warning missing in ours: {line}" for line in theirs.warnings if line not in ours.warnings]
    return lines + [f"warned by us only: {line}" for line in ours.warnings if line not in theirs.warnings]
