"""Semantic versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
from torchyard.apiserver.cel.types import BOOL, INT, STRING, opaque

_SEMVER = opaque("kubernetes.Semver")
_NUMBER = r"(0|[1-9]\d*)"
_PARTS = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_LOOSE = re.compile(r"v?0*(\d+)(?:\.0*(\d+))?(?:\.0*(\d+))?(.*)")


@dataclass(frozen=True, slots=True)
class Semver:
    cel_name: ClassVar[str] = "kubernetes.Semver"
    numbers: tuple[int, int, int]
    before: str = ""  # what stands after a dash: alpha.1

    def order(self) -> tuple[object, ...]:
        """A key that sorts versions; one without anything after a dash comes last."""
        parts = [(0, int(one), "") if one.isdigit() else (1, 0, one) for one in self.before.split(".") if one]
        return (*self.numbers, not self.before, parts)


def _normalized(text: str) -> str:
    match = _LOOSE.fullmatch(text)
    if match is None:
        return text
    major, minor, patch, rest = match.groups()
    return f"{major}.{minor or 0}.{patch or 0}{rest}"


def _parse(text: str, normalize: bool = False) -> Semver:
    match = _PARTS.fullmatch(_normalized(text) if normalize else text)
    if match is None:
        raise EvaluationError(
            "No Major.Minor.Patch elements found" if text.count(".") < 2 else f'Invalid semantic version "{text}"'
        )
    major, minor, patch, before = match.groups()
    return Semver((int(major), int(minor), int(patch)), before or "")


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _parse(text, normalize)
    except EvaluationError:
        return False
    return True


def _compare(one: Semver, other: Semver) -> int:
    left, right = one.order(), other.order()
    return (left > right) - (left < right)


_READ = (overload(STRING, result=_SEMVER), overload(STRING, BOOL, result=_SEMVER))
FUNCTIONS: tuple[FunctionDecl, ...] = (
    function("semver", _parse, *_READ),
    function("isSemver", _is_semver, overload(STRING, result=BOOL), overload(STRING, BOOL, result=BOOL)),
    function("major", lambda version: version.numbers[0], member_overload(_SEMVER, result=INT)),
    function("minor", lambda version: version.numbers[1], member_overload(_SEMVER, result=INT)),
    function("patch", lambda version: version.numbers[2], member_overload(_SEMVER, result=INT)),
    function("compareTo", _compare, member_overload(_SEMVER, _SEMVER, result=INT)),
    function("isLessThan", lambda one, other: _compare(one, other) < 0, member_overload(_SEMVER, _SEMVER, result=BOOL)),
    function(
        "isGreaterThan", lambda one, other: _compare(one, other) > 0, member_overload(_SEMVER, _SEMVER, result=BOOL)
    ),
)
