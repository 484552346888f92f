"""Two answers to the same request, without what must differ and without what nobody could rely on.

Must differ: identities, times, versions, drawn addresses and ports.
Nobody could rely on: the Go names of internal structs inside "Invalid value: {...}", the diff of two structs behind a
sentence, the order of faults and of managers whose last writes fell into the same second, and that the real server
lists a fault of an update twice when two of its layers find it.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from tests.support.http import Answer

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_NOW_SECONDS = 300.0
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"10\.96\.\d+\.\d+")
_NODE_PORT = re.compile(r"(?<=value: )3[0-2]\d{3}\b")
_TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")
_STRUCT = re.compile(r'value: (?:"(?:\{.*\}|map\[.*\])"|\{.*\})(?=: |$|, |\])', re.DOTALL)
_DIFF = re.compile(r"(?<=^Forbidden: )([^\n]*)\n.*", re.DOTALL)


def shown(answer: Answer) -> dict[str, Any]:
    """What is compared of one answer."""
    body = json.loads(answer.body)
    if answer.status >= 400:
        return {"status": answer.status} | _failure(body)
    return {"status": answer.status, "warnings": sorted(_warnings(answer)), "object": _object(body)}


def differences(real: Any, ours: Any, at: str = "") -> list[str]:
    """One line per place where two answers differ."""
    if isinstance(real, dict) and isinstance(ours, dict):
        lines = []
        for key in sorted(real.keys() | ours.keys()):
            where = f"{at}.{key}"
            if key not in ours:
                lines.append(f"{where}: {_short(real[key])} there, nothing here")
            elif key not in real:
                lines.append(f"{where}: nothing there, {_short(ours[key])} here")
            else:
                lines += differences(real[key], ours[key], where)
        return lines
    if isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        return [
            line for i, (a, b) in enumerate(zip(real, ours, strict=True)) for line in differences(a, b, f"{at}[{i}]")
        ]
    same = type(real) is type(ours) and real == ours
    return [] if same else [f"{at}: {_short(real)} there, {_short(ours)} here"]


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) < 400 else f"{text[:400]}…"


def _failure(body: dict[str, Any]) -> dict[str, Any]:
    details = body.get("details") or {}
    causes = {(c.get("field", ""), c.get("reason", ""), _text(c.get("message", ""))) for c in details.get("causes", [])}
    message = {"reason": body.get("reason", ""), "causes": [list(cause) for cause in sorted(causes)]}
    message["details"] = {key: value for key, value in details.items() if key != "causes"}
    if not causes:
        message["message"] = _text(body.get("message", ""))
    return message


def _warnings(answer: Answer) -> list[str]:
    # That nothing acts on a kind here is ours to say.
    return [item for item in answer.warnings if "nothing in this plane acts on it" not in item]


def _text(text: str) -> str:
    text = _STRUCT.sub("value: <struct>", text)
    text = _DIFF.sub(r"\1", text)
    text = re.sub(r"resourceVersion: \d+", "resourceVersion: <version>", text)
    for pattern, name in (
        *((_UID, "<uid>"), (_ADDRESS, "<address>"), (_NODE_PORT, "<port>")),
        *((_TOKEN_VOLUME, "<token>"), (_MOMENT, "<time>")),
    ):
        text = pattern.sub(name, text)
    return text


def _object(obj: dict[str, Any]) -> Any:
    metadata = obj.get("metadata", {})
    for key in ("resourceVersion", "creationTimestamp", "deletionTimestamp"):
        if key in metadata:
            metadata[key] = "<set>"
    managers = metadata.get("managedFields", [])
    for entry in managers:
        if "time" in entry:
            entry["time"] = "<set>"
    managers.sort(key=lambda entry: (entry["manager"], entry["operation"], entry.get("subresource", "")))
    return _generic(obj)


def _generic(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _text(key): "<port>" if key in ("nodePort", "healthCheckNodePort") else _generic(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_generic(item) for item in value]
    if isinstance(value, str):
        return _time(value) if _MOMENT.fullmatch(value) else _text(value)
    return value


def _time(value: str) -> str:
    """A time that the server has just set: both servers answered within these minutes, but not in the same second."""
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(value)
    except ValueError:  # such as the 30th of February, which a client sent
        return value
    return "<now>" if abs(age.total_seconds()) < _NOW_SECONDS else value
