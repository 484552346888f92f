"""The elements (steps) of a field path: their form in `fieldsV1`, their form in messages, and their order."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from torchyard.api.go_format import format_q, format_v
from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.fieldset import SELF, FieldPath, FieldSet


class UnkeyedItemError(Exception):
    """A list item without a valid key."""


def item_step(item: Any, type: Type) -> str:
    """The step to an item of an associative list of the given type."""
    keys = type.list_keys
    if len(keys) == 1 and item.__class__ is dict and (name := item.get(keys[0])).__class__ is str:
        return _named_step(keys[0], name)
    if type.list_type == "set":
        if item is None or isinstance(item, dict | list):
            raise UnkeyedItemError(_NO_VALUE[item.__class__])
        return _value_step(item)
    if not isinstance(item, dict) or type.items is None:
        kind = "a null element" if item is None else "non-map elements"
        raise UnkeyedItemError(f"associative list with keys may not have {kind}")
    try:
        return _keyed_step(keys, *[item[key] for key in keys])
    except KeyError:
        return _keyed_step(keys, *[item[key] if key in item else _key_default(type.items, key) for key in keys])
    except TypeError:
        raise UnkeyedItemError(
            f"associative list with keys has an element whose keys are not scalars: {format_v(item)}"
        ) from None


_NO_VALUE = {
    dict: "associative list without keys has an element that's a map type",
    list: "not supported: associative list with lists as elements",
    type(None): "associative list without keys has an element that's an explicit null",
}


# The same few names are used over and over.
@lru_cache(maxsize=8192)
def _named_step(key: str, name: str) -> str:
    return "k:" + _json({key: name})


# `typed`, because 1 and true are equal in Python and differ in JSON.
@lru_cache(maxsize=8192, typed=True)
def _keyed_step(keys: tuple[str, ...], *values: Any) -> str:
    return "k:" + _json(dict(sorted(zip(keys, values, strict=True))))


@lru_cache(maxsize=8192, typed=True)
def _value_step(value: Any) -> str:
    return "v:" + _json(value)


def _key_default(item: Type, key: str) -> Any:
    """The value of a missing key: the declared default, or the zero value of a field that Go always writes."""
    field = item.fields.get(key)
    if field is not None and field.has_default:
        return field.default
    if field is not None and field.zero == "always":
        return {"string": "", "boolean": False}.get(field.shape, 0)
    raise UnkeyedItemError(
        f"associative list with keys has an element that omits key field {format_q(key)}"
        " (and doesn't have default value)"
    )


def _json(value: Any) -> str:
    text = orjson.dumps(value).decode()
    # Go's encoder escapes HTML characters.
    if "&" in text or "<" in text or ">" in text:
        text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return text


def canonical_fieldset(fields: FieldSet) -> FieldSet:
    """A client's field set in canonical form, without unknown kinds of steps. ValueError or TypeError if invalid."""
    result: FieldSet = {}
    for step, inner in fields.items():
        if not isinstance(inner, dict):
            raise TypeError("a field set contains only objects")
        if step == SELF:
            result[SELF] = {}
            continue
        kind, colon, rest = step.partition(":")
        if colon != ":" or len(kind) != 1:
            raise ValueError(f"missing colon: {step}")
        if kind in "kv":
            step = f"{kind}:{_json(_sorted(orjson.loads(rest)))}"  # noqa: PLW2901 - the same step, respelled
        elif kind not in "fi":
            continue
        result[step] = canonical_fieldset(inner)
    return {} if result.keys() == {SELF} else result


def _sorted(value: Any) -> Any:
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def format_step(step: str) -> str:
    """`.name`, `[port=80,protocol="TCP"]` or `[="x"]`."""
    kind, _, rest = step.partition(":")
    match kind:
        case "f":
            return f".{rest}"
        case "k":
            keys = orjson.loads(rest)
            return "[" + ",".join(f"{key}={_format_key_value(keys[key])}" for key in sorted(keys)) + "]"
        case "v":
            return f"[={_format_key_value(orjson.loads(rest))}]"
        case _:
            return f"[{rest}]"


def format_path(path: FieldPath) -> str:
    return "".join(map(format_step, path))


def _format_key_value(value: Any) -> str:
    return format_q(value) if isinstance(value, str) else format_v(value)


def step_order(step: str) -> tuple[Any, ...]:
    """A key that sorts steps as upstream does: fields, then keyed items, then values, then positions."""
    kind, _, rest = step.partition(":")
    match kind:
        case "f":
            return (0, rest)
        case "k":
            keys = orjson.loads(rest)
            return (1, [(key, *_value_order(keys[key])) for key in sorted(keys)])
        case "v":
            return (2, _value_order(orjson.loads(rest)))
        case _:
            return (3, int(rest))


def _value_order(value: Any) -> tuple[int, Any]:
    # Upstream's order of kinds: numbers, strings, booleans.
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    return (1, str(value))
