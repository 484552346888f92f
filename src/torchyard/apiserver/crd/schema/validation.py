"""Validates values against a compiled schema: types, limits, formats, alternatives.

Mirrors kube-openapi's validator as kube-apiserver uses it for custom resources: its messages, its order of checks,
and its choice of the alternative whose errors are reported (the one with the most passed checks).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.apiserver.crd.schema import formats
from torchyard.apiserver.crd.schema.node import SchemaNode, ValueChecks, hashable_json
from torchyard.apiserver.crd.schema.value_path import ValuePath, format_path
from torchyard.apiserver.golang.regexp import pattern
from torchyard.apiserver.golang.values import go_number, is_json_integer, json_type

# The old value where there is none.
ABSENT: Any = object()
_EMPTY: dict[str, Any] = {}

# The path of an alternative's error: kube-openapi's error has none, and the server prints it so.
NO_PATH = "<nil>"


def schema_errors(value: Any, node: SchemaNode, *, path: ValuePath = None, old: Any = ABSENT) -> list[FieldError]:
    """The errors of a value. An update may keep an invalid value that equals the one in `old`."""
    errs: list[FieldError] = []
    _check(value, node, path, errs, old)
    return errs


def _check(value: Any, node: SchemaNode, path: ValuePath, errs: list[FieldError], old: Any) -> int:
    """Append the errors of one value; returns the number of passed checks."""
    if old is not ABSENT and not node.counted and _is_unchanged(value, old):
        return 0
    before = len(errs)
    passed = _check_value(value, node, path, errs, old)
    if len(errs) > before and old is not ABSENT and _is_unchanged(value, old):
        del errs[before:]
    return passed


def _is_unchanged(value: Any, old: Any) -> bool:
    """Whether an update leaves a value unchanged. Unlike in Python, true does not equal 1."""
    if value is old:
        return True
    if value.__class__ is not old.__class__ or value != old:
        return False
    if value.__class__ is dict:
        return all(_is_unchanged(item, old[name]) for name, item in value.items())
    if value.__class__ is list:
        return all(map(_is_unchanged, value, old))
    return True


def _check_value(value: Any, node: SchemaNode, path: ValuePath, errs: list[FieldError], old: Any) -> int:  # noqa: C901 - one branch per schema keyword
    checks = node.checks
    if value is None:
        passed = 1
        if node.types and not node.nullable:
            passed = _wrong_type(",".join(node.types), "null", path, errs)
        if checks is not None and checks.enum:
            errs.append(_unsupported(value, checks.enum, path))
        return passed
    passed = 4  # alternatives, their combined result, the enumeration, and the value itself
    if type(value) is node.exact_type:
        passed += 2
    elif node.types or (checks is not None and checks.format):
        passed += 1 + _check_type(value, node, path, errs)
    if checks is not None:
        passed += _check_junctors(value, checks, path, errs, old)
    if isinstance(value, str):
        passed += 1
        if checks is not None:
            passed += bool(checks.format)
            check_string(value, checks, path, errs)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        passed += 2
        if checks is not None:
            check_number(value, checks, path, errs)
    elif isinstance(value, list):
        passed += 2 + _check_list(value, node, path, errs, old)
    if checks is not None and checks.enum and not any(_json_equal(value, allowed) for allowed in checks.enum):
        errs.append(_unsupported(value, checks.enum, path))
    if isinstance(value, dict):
        passed += 1 + _check_object(value, node, path, errs, old)
    return passed


def _check_type(value: Any, node: SchemaNode, path: ValuePath, errs: list[FieldError]) -> int:
    actual, expected = json_type(value), node.types
    fits = actual in expected or _fits_number(value, actual, expected)
    text = isinstance(value, (str, list))  # as upstream: a list passes in place of a formatted string
    checked = node.checks.format if node.checks is not None else ""
    if checked:
        if not text and not fits:
            go_format = {"integer": "int64", "number": "float64"}.get(actual, "")
            return _wrong_type(checked, go_format, path, errs)
        if text and "number" not in expected and "integer" not in expected:
            return 1
    return 1 if fits else _wrong_type(",".join(expected), actual, path, errs)


def _fits_number(value: Any, actual: str, expected: tuple[str, ...]) -> bool:
    if actual == "integer":
        return "number" in expected
    return actual == "number" and "integer" in expected and is_json_integer(value)


def _wrong_type(expected: str, actual: str, path: ValuePath, errs: list[FieldError]) -> int:
    at = format_path(path)
    errs.append(
        field_errors.wrong_type(
            at, actual, f"{at} in body must be of type {expected}: {field_errors.format_value(actual)}"
        )
    )
    return 0


def _unsupported(value: Any, allowed: list[Any], path: ValuePath) -> FieldError:
    names = [entry if isinstance(entry, str) else field_errors.format_value(entry) for entry in allowed]
    return field_errors.not_supported(format_path(path), value, names)


def _json_equal(value: Any, other: Any) -> bool:
    """Equality of JSON values: numbers by value; a boolean is not a number."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    return bool(value == other)


def check_string(value: str, checks: ValueChecks, path: ValuePath, errs: list[FieldError]) -> None:
    """Append the errors of a string's length, pattern and format."""
    if checks.max_length is not None and len(value) > checks.max_length:
        errs.append(field_errors.too_long(format_path(path), checks.max_length))
    elif checks.min_length is not None and len(value) < checks.min_length:
        errs.append(invalid(format_path(path), value, f"should be at least {checks.min_length} chars long"))
    elif checks.pattern and pattern(checks.pattern).search(value) is None:
        errs.append(invalid(format_path(path), value, f"should match '{checks.pattern}'"))
    if checks.format and not formats.valid(checks.format, value):
        at = format_path(path)
        detail = f"{at} in body must be of type {checks.format}: {field_errors.format_value(value)}"
        errs.append(field_errors.wrong_type(at, value, detail))


def check_number(value: float, checks: ValueChecks, path: ValuePath, errs: list[FieldError]) -> None:
    """Append the errors of a number's limits and multipleOf."""

    # As upstream: limits are truncated to integers for integer values; a minimum of 0.5 allows 0.
    def native(limit: float) -> float:
        return int(limit) if isinstance(value, int) else float(limit)

    if checks.multiple_of is not None and not _is_multiple(value, checks.multiple_of):
        errs.append(invalid(format_path(path), value, f"should be a multiple of {go_number(checks.multiple_of)}"))
    if checks.maximum is not None:
        limit = native(checks.maximum)
        if value >= limit if checks.exclusive_maximum else value > limit:
            word = "less than" if checks.exclusive_maximum else "less than or equal to"
            errs.append(invalid(format_path(path), value, f"should be {word} {go_number(limit)}"))
    if checks.minimum is not None:
        limit = native(checks.minimum)
        if value <= limit if checks.exclusive_minimum else value < limit:
            word = "greater than" if checks.exclusive_minimum else "greater than or equal to"
            errs.append(invalid(format_path(path), value, f"should be {word} {go_number(limit)}"))


def _is_multiple(value: float, factor: float) -> bool:
    if isinstance(value, int) and float(factor).is_integer():
        return value % int(factor) == 0
    return is_json_integer(1 / factor * value if factor < 1 else value / factor)


def _check_list(value: list[Any], node: SchemaNode, path: ValuePath, errs: list[FieldError], old: Any) -> int:
    passed = 0
    items, checks = node.items, node.checks
    if items is not None:
        old_items = items_by_key(old, node) if isinstance(old, list) and node.list_type == "map" else None
        for index, item in enumerate(value):
            if type(item) is items.plain_type:
                passed += items.plain_checks
                continue
            old_item = ABSENT if old_items is None else old_items.get(list_key(item, node), ABSENT)
            passed += _check(item, items, (path, index), errs, old_item)
    if checks is not None:
        if checks.min_items is not None and len(value) < checks.min_items:
            errs.append(invalid(format_path(path), len(value), f"should have at least {checks.min_items} items"))
        if checks.max_items is not None and len(value) > checks.max_items:
            errs.append(field_errors.too_many(format_path(path), len(value), checks.max_items))
    return passed


def items_by_key(value: list[Any], node: SchemaNode) -> dict[Hashable, Any]:
    """The items of a map list by their keys; items without all keys are left out, the first duplicate counts."""
    return {key: item for item in reversed(value) if (key := list_key(item, node)) is not None}


def list_key(item: Any, node: SchemaNode) -> Hashable:
    if not isinstance(item, dict) or not all(name in item for name in node.list_keys):
        return None
    return tuple(hashable_json(item[name]) for name in node.list_keys)


def _check_object(value: dict[str, Any], node: SchemaNode, path: ValuePath, errs: list[FieldError], old: Any) -> int:
    checks = node.checks
    if checks is not None:
        if checks.min_properties is not None and len(value) < checks.min_properties:
            detail = f"should have at least {checks.min_properties} properties"
            errs.append(invalid(format_path(path), len(value), detail))
            return 0
        if checks.max_properties is not None and len(value) > checks.max_properties:
            errs.append(field_errors.too_many(format_path(path), len(value), checks.max_properties))
            return 0
    passed = 0
    properties, additional = node.properties, node.additional
    old_map = old if isinstance(old, dict) else _EMPTY
    for name, sub_value in value.items():
        sub = properties.get(name, additional)
        if sub is not None:
            if type(sub_value) is sub.plain_type:
                passed += sub.plain_checks
                continue
            passed += _check(sub_value, sub, (path, name), errs, old_map.get(name, ABSENT))
        elif node.additional_forbidden:
            at = format_path(path)
            errs.append(field_errors.invalid(at, name, f"{at}.{name} in body is a forbidden property"))
    if checks is not None:
        errs.extend(field_errors.required(format_path((path, name))) for name in checks.required if name not in value)
    return passed


def _check_junctors(value: Any, checks: ValueChecks, path: ValuePath, errs: list[FieldError], old: Any) -> int:
    """anyOf, oneOf, allOf and not. Each applies to the value itself, so only nested values can be unchanged."""
    passed = 0
    if checks.any_of:
        passed += _check_any(value, checks.any_of, path, errs, old)
    if checks.one_of:
        passed += _check_one(value, checks.one_of, path, errs, old)
    if checks.all_of:
        valid = 0
        for node in checks.all_of:
            before = len(errs)
            passed += _check_value(value, node, path, errs, old)
            valid += len(errs) == before
        if valid != len(checks.all_of):
            more = "" if valid else ". None validated"
            errs.append(_junctor_error(path, f"must validate all the schemas (allOf){more}"))
    if checks.negated is not None:
        negated_errs: list[FieldError] = []
        _check_value(value, checks.negated, path, negated_errs, old)
        if not negated_errs:
            errs.append(_junctor_error(path, "must not validate the schema (not)"))
    return passed


def _check_any(value: Any, nodes: tuple[SchemaNode, ...], path: ValuePath, errs: list[FieldError], old: Any) -> int:
    best: tuple[int, list[FieldError]] = (-1, [])
    for node in nodes:
        own: list[FieldError] = []
        passed = _check_value(value, node, path, own, old)
        if not own:
            return passed
        if passed > best[0]:
            best = passed, own
    errs.append(_junctor_error(path, "must validate at least one schema (anyOf)"))
    errs.extend(best[1])
    return best[0]


def _check_one(value: Any, nodes: tuple[SchemaNode, ...], path: ValuePath, errs: list[FieldError], old: Any) -> int:
    best: tuple[int, list[FieldError]] = (-1, [])
    valid: list[int] = []
    for node in nodes:
        own: list[FieldError] = []
        passed = _check_value(value, node, path, own, old)
        if not own:
            valid.append(passed)
        elif passed > best[0]:
            best = passed, own
    if len(valid) == 1:
        return valid[0]
    if valid:
        errs.append(_one_of_error(path, f"Found {len(valid)} valid alternatives"))
        return 0
    errs.append(_one_of_error(path, "Found none valid"))
    errs.extend(best[1])
    return best[0]


def _one_of_error(path: ValuePath, counted: str) -> FieldError:
    return _junctor_error(path, f"must validate one and only one schema (oneOf). {counted}")


def _junctor_error(path: ValuePath, message: str) -> FieldError:
    return field_errors.invalid(NO_PATH, "", f"{field_errors.format_value(format_path(path))} {message}")


def invalid(at: str, value: Any, message: str) -> FieldError:
    value_text = go_number(value) if isinstance(value, float) else field_errors.format_value(value)
    return FieldError("FieldValueInvalid", at, f"Invalid value: {value_text}: {at} in body {message}")
