"""Field paths in a CRD that refer to its own schema: selectable fields and the fieldPath of rules."""

from __future__ import annotations

import re
from typing import Any

from torchyard.apiserver.crd.schema.json_schema import Schema

_TOKEN = re.compile(r"'(?:\\.|[^'\\])*'?|[.\[\]]|[^.\[\]']+|'")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class FieldPathError(ValueError):
    """An invalid field path, and why."""


def follow(path: str, schema: Schema, *, brackets: bool = True) -> tuple[str, Schema]:
    """The path as it appears in messages, and the schema at the path."""
    written = ""
    tokens = iter(_TOKEN.findall(path))
    for mark in tokens:
        if mark == "." or (mark == "[" and brackets):
            name = _next(tokens)
            if mark == "[":
                name = _unquoted(name)
            properties, additional = schema.get("properties"), schema.get("additionalProperties")
            if properties:
                if name not in properties:
                    raise FieldPathError("does not refer to a valid field")
                written, schema = f"{written}.{name}", properties[name]
            elif additional is not None:
                written, schema = f"{written}[{name}]", additional if isinstance(additional, dict) else {}
            else:
                raise FieldPathError("does not refer to a valid field")
            if mark == "[" and (closing := _next(tokens)) != "]":
                raise FieldPathError(f"expected ] but got {closing}")
        elif mark == "[":
            raise FieldPathError("array notation is not allowed")
        else:
            raise FieldPathError(f"expected [ or . but got: {mark}")
    return written.removeprefix("."), schema


def _next(tokens: Any) -> str:
    token = next(tokens, None)
    if token is None:
        raise FieldPathError("unexpected end of JSON path")
    return str(token)


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {token}")

    def unescaped(match: re.Match[str]) -> str:
        if match.group(1) not in _ESCAPES:
            raise FieldPathError(f"invalid string literal: invalid escape char {match.group()}")
        return _ESCAPES[match.group(1)]

    return re.sub(r"\\(.)", unescaped, token[1:-1])
