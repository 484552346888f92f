"""How Go names JSON types and prints numbers, for messages that contain them."""

from __future__ import annotations

import functools
import math
from typing import Any

INT64 = range(-(2**63), 2**63)
_MAX_JSON_INTEGER = 2**53 - 1
_TOLERANCE = 1e-9


def json_type(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if value in INT64 else "number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "null"


def is_json_integer(value: float) -> bool:
    """Whether a number is an integer that JSON represents exactly, or near enough (go-openapi's rule)."""
    if not math.isfinite(value) or abs(value) > _MAX_JSON_INTEGER:
        return False
    whole = float(int(value))
    if value == whole:
        return True
    return bool(whole) and abs(value - whole) / (abs(value) + abs(whole)) < _TOLERANCE


@functools.lru_cache(maxsize=256)
def go_number(value: float) -> str:
    """A number as Go's %v prints it: the shortest digits; floats from 1e+06 on or below 1e-04 with an exponent."""
    if isinstance(value, int) or value == 0:
        return str(int(value))
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    digits, exponent = _shortest(value).split("e")
    power = int(exponent)
    if power < -4 or power >= 6:
        return f"{digits}e{power:+03d}"
    return repr(value).removesuffix(".0")


def _shortest(value: float) -> str:
    for precision in range(17):
        text = f"{value:.{precision}e}"
        if float(text) == value:
            return text
    return f"{value:.17e}"
