"""Values that may be missing."""

from __future__ import annotations

from typing import Any

from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import Function, call, function, method
from torchyard.apiserver.cel.types import BOOL, A, list_of, optional_of
from torchyard.apiserver.cel.values import NONE, Optional

_OPTIONAL = optional_of(A)


def _value(optional: Optional) -> Any:
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _of_non_zero(value: Any) -> Optional:
    return Optional(value) if value or getattr(value, "nanos", 0) else NONE


FUNCTIONS: tuple[Function, ...] = (
    function("optional.of", Optional, call(A, gives=_OPTIONAL)),
    function("optional.ofNonZeroValue", _of_non_zero, call(A, gives=_OPTIONAL)),
    function("optional.none", lambda: NONE, call(gives=_OPTIONAL)),
    function("hasValue", lambda optional: optional.present, method(_OPTIONAL, gives=BOOL)),
    function("value", _value, method(_OPTIONAL, gives=A)),
    function("or", lambda one, other: one if one.present else other, method(_OPTIONAL, _OPTIONAL, gives=_OPTIONAL)),
    function("orValue", lambda one, other: one.value if one.present else other, method(_OPTIONAL, A, gives=A)),
    function("first", lambda items: Optional(items[0]) if items else NONE, method(list_of(A), gives=_OPTIONAL)),
    function("last", lambda items: Optional(items[-1]) if items else NONE, method(list_of(A), gives=_OPTIONAL)),
)
