"""Field selectors: `status.phase=Running,spec.nodeName!=a`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from torchyard.api import errors
from torchyard.api.selectors.grammar import EQUALS, NOT_EQUALS


class Term(NamedTuple):
    """A requirement on one field: `=` or `!=`."""

    field: str
    operator: str
    value: str


class FieldSelector:
    """Requirements on fields, all of which must hold. `matches` takes the selectable fields of an object."""

    __slots__ = ("equalities", "matches", "terms")

    def __init__(self, terms: Iterable[Term] = ()) -> None:
        self.terms = tuple(terms)
        self.equalities = {term.field: term.value for term in self.terms if term.operator == EQUALS}
        self.matches: Callable[[Mapping[str, str]], bool] = self._matches if self.terms else lambda _: True

    @property
    def everything(self) -> bool:
        return not self.terms

    @property
    def fields(self) -> list[str]:
        return [term.field for term in self.terms]

    def _matches(self, values: Mapping[str, str]) -> bool:
        return all((values.get(field, "") == value) is (operator == EQUALS) for field, operator, value in self.terms)

    def __str__(self) -> str:
        return ",".join(f"{field}{operator}{_escape(value)}" for field, operator, value in self.terms)


ANY_FIELDS = FieldSelector()
_comma = re.compile(r"((?:[^\\,]|\\.)*\\?)(?:,|$)", re.DOTALL)
_comparison = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL).fullmatch


def parse_fields(text: str) -> FieldSelector:
    """Parse a `fieldSelector` parameter. Raises 400 with upstream's message."""
    if not text:
        return ANY_FIELDS
    terms = []
    for part in sorted(_split_terms(text)):  # as upstream: the first name is the one that is authorized
        if not part:
            continue
        compared = _comparison(part)
        if compared is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = compared.groups()
        terms.append(Term(field, NOT_EQUALS if operator == NOT_EQUALS else EQUALS, _unescape(value)))
    return FieldSelector(terms)


def _split_terms(text: str) -> Iterable[str]:
    at = 0
    while at <= len(text):
        match = _comma.match(text, at)
        if match is None:
            return
        yield match.group(1)
        at = match.end() + (match.end() == len(text) and not match.group(0).endswith(","))


def _unescape(value: str) -> str:
    written: list[str] = []
    letters = iter(value)
    for letter in letters:
        if letter == "\\":
            escaped = next(letters, "")
            if escaped not in ("\\", ",", "="):
                raise errors.bad_request(f"invalid field selector: invalid escape sequence: \\{escaped}")
            written.append(escaped)
        elif letter in ",=":
            raise errors.bad_request(f"invalid field selector: unescaped character in value: {ord(letter)}")
        else:
            written.append(letter)
    return "".join(written)


def _escape(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)


# Kinds whose message about an unsupported field label differs from the generic one.
_SHORT_MESSAGE = frozenset(
    {"Pod", "Node", "Namespace", "Secret", "Service", "ReplicationController", "Event", "CertificateSigningRequest"}
)


def check_fields(
    selector: FieldSelector, kind: str, supported: Iterable[str], *, custom: bool = False, namespaced: bool = True
) -> None:
    """Raise 400 if the selector has a field that the kind does not support."""
    known = set(supported)
    if not namespaced and (custom or kind in _SHORT_MESSAGE):
        # other cluster-scoped kinds accept it and select nothing
        known.discard("metadata.namespace")
    for field in selector.fields:
        if field in known:
            continue
        if kind == "Job" and not custom:
            raise errors.bad_request(f'field label "{field}" not supported for Job')
        if custom or kind in _SHORT_MESSAGE:
            raise errors.bad_request(f"field label not supported: {field}")
        raise errors.bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
