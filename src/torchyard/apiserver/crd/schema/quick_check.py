"""Fast checks that recognize valid values without collecting errors.

Each node of a schema gets a compiled function, which is cached. False means "unknown": only `validation` and `lists`
decide what is wrong and whether an update may keep it. A second function also checks that pruning and defaulting
would leave the value unchanged, so that one pass replaces three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchyard.api.field_errors import FieldError
from torchyard.apiserver.crd.schema.lists import has_duplicates
from torchyard.apiserver.crd.schema.node import META_FIELDS, SchemaNode, ValueChecks
from torchyard.apiserver.crd.schema.validation import check_number, check_string
from torchyard.apiserver.golang.values import INT64

QuickCheck = Callable[[Any], bool]


def valid_check(node: SchemaNode) -> QuickCheck:
    """A function that is true only for valid values without duplicate list items, whatever value they replace."""
    if node.is_valid is None:
        node.is_valid = _build(node, normalized=False)
    return node.is_valid


def normalized_check(node: SchemaNode) -> QuickCheck:
    """A function that is true only for valid values that pruning and defaulting do not change."""
    if node.is_normalized is None:
        node.is_normalized = _build(node, normalized=True)
    return node.is_normalized


def _build(node: SchemaNode, *, normalized: bool) -> QuickCheck:
    """Compile a check. With `normalized`, pruning and defaulting must not change the value; alternatives never do."""
    checks = node.checks
    if checks is None:
        return _of_type(node, normalized=normalized)
    # For `not` and `oneOf` an unchanged old value can make a valid value invalid.
    if checks.one_of or checks.negated is not None:
        return never
    if (checks.format or checks.enum) and node.type != "string":
        return never
    own = _of_type(node, normalized=normalized)
    if not checks.any_of and not checks.all_of:
        return own
    all_of = [valid_check(alternative) for alternative in checks.all_of]
    any_of = [valid_check(alternative) for alternative in checks.any_of]

    def accept(value: Any) -> bool:
        if not own(value) or not all(check(value) for check in all_of):
            return False
        return not any_of or any(check(value) for check in any_of)

    return accept


def never(_: Any) -> bool:
    return False


def _always(_: Any) -> bool:
    return True


def _of_type(node: SchemaNode, *, normalized: bool) -> QuickCheck:
    """The check of the node itself, without its alternatives."""
    match node.type:
        case "object":
            return _object(node, normalized=normalized)
        case "array":
            return _list(node, normalized=normalized)
        case "string":
            return _string(node.checks)
        case "boolean":
            return lambda value: value.__class__ is bool
        case "integer":
            return _integer(node.checks)
        case "number":
            return _number(node.checks, normalized=normalized)
    by_class: dict[type, QuickCheck] = {str: _string(node.checks), int: _integer(node.checks)}
    if not node.int_or_string:
        by_class |= {dict: _object(node, normalized=normalized), list: _list(node, normalized=normalized)}
        by_class |= {float: _number(node.checks, normalized=normalized), bool: _always}

    def accept(value: Any) -> bool:
        own = by_class.get(value.__class__)
        return own is not None and own(value)

    return accept


def _object(node: SchemaNode, *, normalized: bool) -> QuickCheck:
    checks = node.checks or ValueChecks()
    below = normalized_check if normalized else valid_check
    required = frozenset(checks.required)
    if normalized:
        required |= {name for name, _ in node.defaulted}
    minimum, maximum = checks.min_properties or 0, checks.max_properties
    fields = {name: (sub.plain_type, below(sub)) for name, sub in node.properties.items()}
    other: tuple[type | None, QuickCheck] | None = None
    if node.additional is not None:
        other = (node.additional.plain_type, below(node.additional))
    elif node.additional_forbidden or (normalized and (node.additional_specified or not node.preserve)):
        other = (None, never)
    if normalized and node.embedded:
        # its metadata is never pruned, and is validated elsewhere
        fields = dict.fromkeys(META_FIELDS, (None, _always)) | fields

    def accept_object(value: Any) -> bool:
        if value.__class__ is not dict or len(value) < minimum or (maximum is not None and len(value) > maximum):
            return False
        if not value.keys() >= required:
            return False
        for name, item in value.items():
            field = fields.get(name, other)
            if field is not None:
                plain, accept = field
                if item.__class__ is not plain and not accept(item):
                    return False
        return True

    return accept_object


def _list(node: SchemaNode, *, normalized: bool) -> QuickCheck:
    checks = node.checks or ValueChecks()
    minimum, maximum = checks.min_items or 0, checks.max_items
    is_unique = node.list_type != "atomic"
    plain, accept = None, None
    if node.items is not None:
        plain, accept = node.items.plain_type, (normalized_check if normalized else valid_check)(node.items)
    elif normalized and not node.preserve:
        accept = never

    def accept_list(value: Any) -> bool:
        if value.__class__ is not list or len(value) < minimum or (maximum is not None and len(value) > maximum):
            return False
        if is_unique and has_duplicates(value, node):
            return False
        if accept is not None:
            for item in value:
                if item.__class__ is not plain and not accept(item):
                    return False
        return True

    return accept_list


def _string(checks: ValueChecks | None) -> QuickCheck:
    if checks is None:
        return lambda value: value.__class__ is str
    allowed = frozenset(value for value in checks.enum if isinstance(value, str)) if checks.enum else None
    limits = (checks.max_length, checks.min_length, checks.pattern or None, checks.format or None)
    is_limited = any(limit is not None for limit in limits)

    def accept_string(value: Any) -> bool:
        if value.__class__ is not str or (allowed is not None and value not in allowed):
            return False
        if not is_limited:
            return True
        errs: list[FieldError] = []
        check_string(value, checks, None, errs)
        return not errs

    return accept_string


def _integer(checks: ValueChecks | None) -> QuickCheck:
    is_within = _within_limits(checks)
    return lambda value: value.__class__ is int and value in INT64 and is_within(value)


def _number(checks: ValueChecks | None, *, normalized: bool) -> QuickCheck:
    is_within = _within_limits(checks)
    # pruning converts integral floats to integers
    if normalized:
        return lambda value: (
            (value.__class__ is int or (value.__class__ is float and not value.is_integer())) and is_within(value)
        )
    return lambda value: (value.__class__ is float or value.__class__ is int) and is_within(value)


def _within_limits(checks: ValueChecks | None) -> Callable[[float], bool]:
    if checks is None:
        return lambda _: True
    limits = checks

    def is_within(value: float) -> bool:
        errs: list[FieldError] = []
        check_number(value, limits, None, errs)
        return not errs

    return is_within
