"""Quantities such as `100m` and `1.5Gi`."""

from __future__ import annotations

import math
from typing import Any

from torchyard.api import quantity
from torchyard.api.quantity import NANO, Quantity, QuantityError
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
from torchyard.apiserver.cel.types import BOOL, DOUBLE, INT, STRING, opaque
from torchyard.apiserver.cel.values import INT_RANGE

_QUANTITY = opaque("kubernetes.Quantity")


class QuantityValue(Quantity):
    """A quantity as a CEL value."""

    __slots__ = ()
    cel_name = "kubernetes.Quantity"
    __hash__ = Quantity.__hash__


def _parse(text: str) -> QuantityValue:
    try:
        parsed = quantity.parse(text)
    except QuantityError as error:
        raise EvaluationError(error.message) from None
    return QuantityValue(parsed.nano, parsed.format)


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except QuantityError:
        return False
    return True


def _nano(value: Any) -> int:
    return int(value.nano) if isinstance(value, Quantity) else int(value) * NANO


def _approximate_float(value: QuantityValue) -> float:
    try:
        return value.nano / NANO
    except OverflowError:
        return math.inf if value.nano > 0 else -math.inf


def _is_integer(value: QuantityValue) -> bool:
    return value.nano % NANO == 0 and value.nano // NANO in INT_RANGE


def _as_integer(value: QuantityValue) -> int:
    if not _is_integer(value):
        raise EvaluationError("cannot convert value to integer")
    return value.nano // NANO


_COMPARE = member_overload(_QUANTITY, _QUANTITY, result=BOOL)
_COMBINE = (member_overload(_QUANTITY, _QUANTITY, result=_QUANTITY), member_overload(_QUANTITY, INT, result=_QUANTITY))

FUNCTIONS: tuple[FunctionDecl, ...] = (
    function("quantity", _parse, overload(STRING, result=_QUANTITY)),
    function("isQuantity", _is_quantity, overload(STRING, result=BOOL)),
    function("sign", lambda value: (value.nano > 0) - (value.nano < 0), overload(_QUANTITY, result=INT)),
    function("isInteger", _is_integer, member_overload(_QUANTITY, result=BOOL)),
    function("asInteger", _as_integer, member_overload(_QUANTITY, result=INT)),
    function("asApproximateFloat", _approximate_float, member_overload(_QUANTITY, result=DOUBLE)),
    function("isGreaterThan", lambda left, right: left.nano > right.nano, _COMPARE),
    function("isLessThan", lambda left, right: left.nano < right.nano, _COMPARE),
    function(
        "compareTo",
        lambda left, right: (left.nano > right.nano) - (left.nano < right.nano),
        member_overload(_QUANTITY, _QUANTITY, result=INT),
    ),
    function("add", lambda left, right: QuantityValue(left.nano + _nano(right), left.format), *_COMBINE),
    function("sub", lambda left, right: QuantityValue(left.nano - _nano(right), left.format), *_COMBINE),
)
