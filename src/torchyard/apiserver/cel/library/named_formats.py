"""Named formats: `format.dns1123Label().validate("a")` returns none, or the problems."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torchyard.api import names
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
from torchyard.apiserver.cel.library.times import parse_date, parse_timestamp
from torchyard.apiserver.cel.library.urls import is_url
from torchyard.apiserver.cel.types import STRING, list_of, opaque, optional_of
from torchyard.apiserver.cel.values import NONE, Optional

_FORMAT = opaque("kubernetes.NamedFormat")
Problems = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class NamedFormat:
    cel_name: ClassVar[str] = "kubernetes.NamedFormat"
    name: str


def _prefix(problems: Problems) -> Problems:
    """The check for a name prefix, which may end in a dash."""
    return lambda text: problems(f"{text[:-1]}a" if text.endswith("-") else text)


def _parses(read: Callable[[str], object], problem: str) -> Problems:
    def problems(text: str) -> list[str]:
        try:
            read(text)
        except (EvaluationError, ValueError, binascii.Error):
            return [problem]
        return []

    return problems


_UUID = "does not match the UUID format"
_FORMATS: dict[str, Problems] = {
    "dns1123Label": names.label_problems,
    "dns1123Subdomain": names.subdomain_problems,
    "dns1035Label": names.dns1035_problems,
    "qualifiedName": names.qualified_name_problems,
    "labelValue": names.label_value_problems,
    "dns1123LabelPrefix": _prefix(names.label_problems),
    "dns1123SubdomainPrefix": _prefix(names.subdomain_problems),
    "dns1035LabelPrefix": _prefix(names.dns1035_problems),
    "uri": lambda text: [] if is_url(text) else ["invalid URI"],
    "uuid": lambda text: [] if _is_uuid(text) else [_UUID],
    "byte": _parses(lambda text: base64.b64decode(text, validate=True), "invalid base64"),
    "date": _parses(parse_date, "invalid date"),
    "datetime": _parses(parse_timestamp, "invalid datetime"),
}


def _is_uuid(text: str) -> bool:
    parts = text.lower().split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(
        letter in "0123456789abcdef" for part in parts for letter in part
    )


def _validate(named: NamedFormat, text: str) -> Optional:
    problems = _FORMATS[named.name](text)
    return Optional(problems) if problems else NONE


def _named(name: str) -> Optional:
    return Optional(NamedFormat(name)) if name in _FORMATS else NONE


def _constant(name: str) -> Callable[[], NamedFormat]:
    value = NamedFormat(name)
    return lambda: value


FUNCTIONS: tuple[FunctionDecl, ...] = (
    *(function(f"format.{name}", _constant(name), overload(result=_FORMAT)) for name in _FORMATS),
    function("format.named", _named, overload(STRING, result=optional_of(_FORMAT))),
    function("validate", _validate, member_overload(_FORMAT, STRING, result=optional_of(list_of(STRING)))),
)
