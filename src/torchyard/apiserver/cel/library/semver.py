"""Semantic versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
from torchyard.apiserver.cel.types import BOOL, INT, STRING, opaque

_SEMVER = opaque("kubernetes.Semver")
_MAX_DIGITS = 20  # of a 64-bit integer
_NUMBER = r"(0|[1-9]\d*)"
_PARTS = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_LOOSE = re.compile(r"v?0*(\d+)(?:\.0*(\d+))?(?:\.0*(\d+))?(.*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Semver:
    cel_name: ClassVar[str] = "kubernetes.Semver"
    numbers: tuple[int, int, int]
    prerelease: str = ""  # the part after the dash: alpha.1

    def order(self) -> tuple[object, ...]:
        """A sort key; a version without a prerelease part sorts after those with one."""
        parts = [
            (0, len(identifier), identifier) if identifier.isdigit() else (1, 0, identifier)
            for identifier in self.prerelease.split(".")
            if identifier
        ]
        return (*self.numbers, not self.prerelease, parts)


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
    major, minor, patch, prerelease = match.groups()
    if max(len(major), len(minor), len(patch)) > _MAX_DIGITS:
        raise EvaluationError(f'Invalid semantic version "{text}"')
    return Semver((int(major), int(minor), int(patch)), prerelease or "")


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _parse(text, normalize)
    except EvaluationError:
        return False
    return True


def _compare(first: Semver, second: Semver) -> int:
    first_key, second_key = first.order(), second.order()
    return (first_key > second_key) - (first_key < second_key)


_READ = (overload(STRING, result=_SEMVER), overload(STRING, BOOL, result=_SEMVER))
FUNCTIONS: tuple[FunctionDecl, ...] = (
    function("semver", _parse, *_READ),
    function("isSemver", _is_semver, overload(STRING, result=BOOL), overload(STRING, BOOL, result=BOOL)),
    function("major", lambda version: version.numbers[0], member_overload(_SEMVER, result=INT)),
    function("minor", lambda version: version.numbers[1], member_overload(_SEMVER, result=INT)),
    function("patch", lambda version: version.numbers[2], member_overload(_SEMVER, result=INT)),
    function("compareTo", _compare, member_overload(_SEMVER, _SEMVER, result=INT)),
    function(
        "isLessThan", lambda first, second: _compare(first, second) < 0, member_overload(_SEMVER, _SEMVER, result=BOOL)
    ),
    function(
        "isGreaterThan",
        lambda first, second: _compare(first, second) > 0,
        member_overload(_SEMVER, _SEMVER, result=BOOL),
    ),
)
