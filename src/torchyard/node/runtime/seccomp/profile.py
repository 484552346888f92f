"""A seccomp profile in the OCI format (`linux.seccomp` of a runtime config), checked and typed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.api.errors import YardError

_ACTIONS = {
    "SCMP_ACT_KILL": 0x00000000,
    "SCMP_ACT_KILL_THREAD": 0x00000000,
    "SCMP_ACT_KILL_PROCESS": 0x80000000,
    "SCMP_ACT_TRAP": 0x00030000,
    "SCMP_ACT_ERRNO": 0x00050000,
    "SCMP_ACT_TRACE": 0x7FF00000,
    "SCMP_ACT_LOG": 0x7FFC0000,
    "SCMP_ACT_ALLOW": 0x7FFF0000,
}
_WITH_DATA = ("SCMP_ACT_ERRNO", "SCMP_ACT_TRACE")
OPERATORS = frozenset(f"SCMP_CMP_{op}" for op in ("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"))
_EPERM = 1


class SeccompProfileError(YardError):
    """A profile that cannot be loaded."""

    code = "SeccompProfileError"


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison with one argument of a call."""

    index: int
    op: str
    value: int
    value_two: int


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to a call whose arguments meet all conditions."""

    names: tuple[str, ...]
    action: int
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class SeccompProfile:
    default: int
    architectures: tuple[str, ...]
    rules: tuple[Rule, ...]


def load(path: Path) -> SeccompProfile:
    try:
        return parse(json.loads(path.read_bytes()))
    except (OSError, ValueError, SeccompProfileError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SeccompProfileError(f'cannot load seccomp profile "{path}": {reason}') from error


def parse(document: Any) -> SeccompProfile:
    if not isinstance(document, dict):
        raise SeccompProfileError("the profile must be an object")
    for key in ("listenerPath", "listenerMetadata", "flags"):
        if document.get(key):
            raise SeccompProfileError(f"{key}: not supported")
    rules = document.get("syscalls") or []
    architectures = document.get("architectures") or []
    if not _strings(architectures):
        raise SeccompProfileError("architectures: must be a list of strings")
    if not isinstance(rules, list):
        raise SeccompProfileError("syscalls: must be a list")
    default = _action(document.get("defaultAction"), document.get("defaultErrnoRet"), "defaultAction")
    return SeccompProfile(
        default=default,
        architectures=tuple(architectures),
        rules=tuple(rule for number, entry in enumerate(rules) for rule in _rules(entry, f"syscalls[{number}]")),
    )


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _action(name: Any, errno: Any, field: str) -> int:
    if not isinstance(name, str) or name not in _ACTIONS:
        raise SeccompProfileError(f"{field}: {name!r} is not a supported action; use one of {', '.join(_ACTIONS)}")
    if errno is None:
        errno = _EPERM
    elif name not in _WITH_DATA:
        raise SeccompProfileError(f"{field}: {name} has no error number")
    if not _is_number(errno, 0xFFFF):
        raise SeccompProfileError(f"{field}: {errno!r} is not an error number")
    return _ACTIONS[name] | (errno if name in _WITH_DATA else 0)


def _is_number(value: Any, highest: int) -> bool:
    return type(value) is int and 0 <= value <= highest


def _rules(entry: Any, field: str) -> list[Rule]:
    """One entry as rules. As in runc, several conditions on the same argument are alternatives."""
    if not isinstance(entry, dict) or not _strings(entry.get("names")) or not entry["names"]:
        raise SeccompProfileError(f"{field}.names: must be a list of system calls")
    names = tuple(entry["names"])
    action = _action(entry.get("action"), entry.get("errnoRet"), f"{field}.action")
    arguments = entry.get("args") or []
    if not isinstance(arguments, list):
        raise SeccompProfileError(f"{field}.args: must be a list")
    conditions = tuple(_condition(item, f"{field}.args[{number}]") for number, item in enumerate(arguments))
    if len({condition.index for condition in conditions}) < len(conditions):
        return [Rule(names, action, (condition,)) for condition in conditions]
    return [Rule(names, action, conditions)]


def _condition(item: Any, field: str) -> Condition:
    if not isinstance(item, dict):
        raise SeccompProfileError(f"{field}: must be an object")
    index, op = item.get("index", 0), item.get("op")
    if not _is_number(index, 5):
        raise SeccompProfileError(f"{field}.index: {index!r} is not the index of an argument; use 0 to 5")
    if not isinstance(op, str) or op not in OPERATORS:
        raise SeccompProfileError(f"{field}.op: {op!r} is not an operator; use one of {', '.join(sorted(OPERATORS))}")
    values = [item.get(key, 0) for key in ("value", "valueTwo")]
    for value in values:
        if not _is_number(value, 2**64 - 1):
            raise SeccompProfileError(f"{field}: {value!r} is not a 64-bit number")
    return Condition(index, op, values[0], values[1])
