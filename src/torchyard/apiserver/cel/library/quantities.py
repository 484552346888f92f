"""Amounts such as `100m` and `1.5Gi`."""

from __future__ import annotations

from typing import Any

from torchyard.api import quantity
from torchyard.api.quantity import NANO, Quantity, QuantityError
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import Function, call, function, method
from torchyard.apiserver.cel.types import BOOL, DOUBLE, INT, STRING, opaque
from torchyard.apiserver.cel.values import INT as INT_RANGE

_QUANTITY = opaque("kubernetes.Quantity")


class Amount(Quantity):
    """A quantity as a CEL value."""

    __slots__ = ()
    cel_name = "kubernetes.Quantity"
    __hash__ = Quantity.__hash__


def _parse(text: str) -> Amount:
    try:
        found = quantity.parse(text)
    except QuantityError as error:
        raise EvaluationError(error.message) from None
    return Amount(found.nano, found.format)


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except QuantityError:
        return False
    return True


def _nano(value: Any) -> int:
    return int(value.nano) if isinstance(value, Quantity) else int(value) * NANO


def _is_integer(value: Amount) -> bool:
    return value.nano % NANO == 0 and value.nano // NANO in INT_RANGE


def _as_integer(value: Amount) -> int:
    if not _is_integer(value):
        raise EvaluationError("cannot convert value to integer")
    return value.nano // NANO


_COMPARE = method(_QUANTITY, _QUANTITY, gives=BOOL)
_COMBINE = (method(_QUANTITY, _QUANTITY, gives=_QUANTITY), method(_QUANTITY, INT, gives=_QUANTITY))

FUNCTIONS: tuple[Function, ...] = (
    function("quantity", _parse, call(STRING, gives=_QUANTITY)),
    function("isQuantity", _is_quantity, call(STRING, gives=BOOL)),
    function("sign", lambda value: (value.nano > 0) - (value.nano < 0), call(_QUANTITY, gives=INT)),
    function("isInteger", _is_integer, method(_QUANTITY, gives=BOOL)),
    function("asInteger", _as_integer, method(_QUANTITY, gives=INT)),
    function("asApproximateFloat", lambda value: value.nano / NANO, method(_QUANTITY, gives=DOUBLE)),
    function("isGreaterThan", lambda one, other: one.nano > other.nano, _COMPARE),
    function("isLessThan", lambda one, other: one.nano < other.nano, _COMPARE),
    function(
        "compareTo",
        lambda one, other: (one.nano > other.nano) - (one.nano < other.nano),
        method(_QUANTITY, _QUANTITY, gives=INT),
    ),
    function("add", lambda one, other: Amount(one.nano + _nano(other), one.format), *_COMBINE),
    function("sub", lambda one, other: Amount(one.nano - _nano(other), one.format), *_COMBINE),
)
