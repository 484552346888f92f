"""Formats JSON values as Go does, because kube-apiserver's messages contain such values."""

from __future__ import annotations

import json
import math
from typing import Any


def format_v(value: Any) -> str:
    """The value as `%v` prints it: `map[a:1 b:[x y]]`."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return _float(value)
        case dict():
            return "map[" + " ".join(f"{key}:{format_v(value[key])}" for key in sorted(value)) + "]"
        case list():
            return "[" + " ".join(map(format_v, value)) + "]"
        case _:
            return str(value)


def format_sharp_v(value: Any) -> str:
    """The value as `%#v` prints it: `map[string]interface {}{"a":1}`."""
    match value:
        case None:
            return "interface {}(nil)"
        case str():
            return format_q(value)
        case dict():
            inside = ", ".join(f"{format_q(key)}:{format_sharp_v(value[key])}" for key in sorted(value))
            return f"map[string]interface {{}}{{{inside}}}"
        case list():
            return "[]interface {}{" + ", ".join(map(format_sharp_v, value)) + "}"
        case _:
            return format_v(value)


def format_type(value: Any) -> str:
    """The value's type as `%T` prints it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "bool"
        case int():
            return "int64"
        case float():
            return "float64"
        case str():
            return "string"
        case dict():
            return "map[string]interface {}"
        case _:
            return "[]interface {}"


def json_type(value: Any) -> str:
    """The name of a JSON value's kind in errors of encoding/json."""
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def format_q(text: str) -> str:
    """The text as `%q` prints it."""
    return json.dumps(text, ensure_ascii=False)


def _float(value: float) -> str:
    # %v is %g with the shortest digits, but switches to an exponent only below 1e-4 and from 1e21 on.
    if math.isfinite(value) and value == int(value) and abs(value) < 1e21:
        return str(int(value))
    return repr(value)
