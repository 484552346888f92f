"""Optional values."""

from __future__ import annotations

from typing import Any

from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
from torchyard.apiserver.cel.types import BOOL, A, list_of, optional_of
from torchyard.apiserver.cel.values import NONE, Optional

_OPTIONAL = optional_of(A)


def _value(optional: Optional) -> Any:
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _of_non_zero(value: Any) -> Optional:
    return Optional(value) if value or getattr(value, "nanos", 0) else NONE


FUNCTIONS: tuple[FunctionDecl, ...] = (
    function("optional.of", Optional, overload(A, result=_OPTIONAL)),
    function("optional.ofNonZeroValue", _of_non_zero, overload(A, result=_OPTIONAL)),
    function("optional.none", lambda: NONE, overload(result=_OPTIONAL)),
    function("hasValue", lambda optional: optional.present, member_overload(_OPTIONAL, result=BOOL)),
    function("value", _value, member_overload(_OPTIONAL, result=A)),
    function(
        "or",
        lambda left, right: left if left.present else right,
        member_overload(_OPTIONAL, _OPTIONAL, result=_OPTIONAL),
    ),
    function(
        "orValue", lambda left, right: left.value if left.present else right, member_overload(_OPTIONAL, A, result=A)
    ),
    function(
        "first", lambda items: Optional(items[0]) if items else NONE, member_overload(list_of(A), result=_OPTIONAL)
    ),
    function(
        "last", lambda items: Optional(items[-1]) if items else NONE, member_overload(list_of(A), result=_OPTIONAL)
    ),
)
