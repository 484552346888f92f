"""Whether a value is valid for sure: what nearly all values are, found out fast and without a word.

For each node of a schema a function is compiled and kept. Its no says only that somebody must look closer: what is
wrong, and whether an update may keep it, is for `validation` and `lists` alone to say. A second one, compiled where
it is asked for, says yes only to what pruning and defaulting would leave alone as well: one look in place of three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchyard.api.field_errors import FieldError
from torchyard.apiserver.crd.schema.lists import has_repeated
from torchyard.apiserver.crd.schema.node import META_FIELDS, SchemaNode, ValueChecks
from torchyard.apiserver.crd.schema.validation import check_number, check_string
from torchyard.apiserver.golang.values import INT64

QuickCheck = Callable[[Any], bool]


def valid_check(node: SchemaNode) -> QuickCheck:
    """The function that says yes only to values with no fault, whatever they replace, and no repeated list items."""
    if node.is_valid is None:
        node.is_valid = _compiled(node, whole=False)
    return node.is_valid


def normalized_check(node: SchemaNode) -> QuickCheck:
    """The function that says yes only to what `acceptor_of` accepts and pruning and defaulting do not change."""
    if node.is_normalized is None:
        node.is_normalized = _compiled(node, whole=True)
    return node.is_normalized


def _compiled(node: SchemaNode, *, whole: bool) -> QuickCheck:
    """`whole`: the value must stay what it is, too. An alternative has no say in that: it only judges."""
    checks = node.checks
    if checks is None:
        return _of_type(node, whole=whole)
    # Where a value must not fit, or fit once, that it was there before can count against it.
    if checks.one_of or checks.negated is not None:
        return never
    if (checks.format or checks.enum) and node.type != "string":
        return never
    own = _of_type(node, whole=whole)
    if not checks.any_of and not checks.all_of:
        return own
    all_of = [valid_check(one) for one in checks.all_of]
    any_of = [valid_check(one) for one in checks.any_of]

    def accept(value: Any) -> bool:
        if not own(value) or not all(one(value) for one in all_of):
            return False
        return not any_of or any(one(value) for one in any_of)

    return accept


def never(_: Any) -> bool:
    return False


def _any(_: Any) -> bool:
    return True


def _of_type(node: SchemaNode, *, whole: bool) -> QuickCheck:
    """The acceptor of what a node itself says, its alternatives aside."""
    match node.type:
        case "object":
            return _object(node, whole=whole)
        case "array":
            return _list(node, whole=whole)
        case "string":
            return _string(node.checks)
        case "boolean":
            return lambda value: value.__class__ is bool
        case "integer":
            return _integer(node.checks)
        case "number":
            return _number(node.checks, whole=whole)
    by_class: dict[type, QuickCheck] = {str: _string(node.checks), int: _integer(node.checks)}
    if not node.int_or_string:
        by_class |= {dict: _object(node, whole=whole), list: _list(node, whole=whole)}
        by_class |= {float: _number(node.checks, whole=whole), bool: _any}

    def accept(value: Any) -> bool:
        own = by_class.get(value.__class__)
        return own is not None and own(value)

    return accept


def _object(node: SchemaNode, *, whole: bool) -> QuickCheck:
    checks = node.checks or ValueChecks()
    below = normalized_check if whole else valid_check
    required = frozenset(checks.required)
    if whole:
        required |= {name for name, _ in node.defaulted}
    least, most = checks.min_properties or 0, checks.max_properties
    fields = {name: (sub.plain, below(sub)) for name, sub in node.properties.items()}
    other: tuple[type | None, QuickCheck] | None = None
    if node.additional is not None:
        other = (node.additional.plain, below(node.additional))
    elif node.additional_forbidden or (whole and (node.additional_specified or not node.preserve)):
        other = (None, never)
    if whole and node.embedded:
        # its own metadata is nobody's to prune; whether it is right is looked at elsewhere
        fields = dict.fromkeys(META_FIELDS, (None, _any)) | fields

    def accept_object(value: Any) -> bool:
        if value.__class__ is not dict or len(value) < least or (most is not None and len(value) > most):
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


def _list(node: SchemaNode, *, whole: bool) -> QuickCheck:
    checks = node.checks or ValueChecks()
    least, most = checks.min_items or 0, checks.max_items
    is_unique = node.list_type != "atomic"
    plain, accept = None, None
    if node.items is not None:
        plain, accept = node.items.plain, (normalized_check if whole else valid_check)(node.items)
    elif whole and not node.preserve:
        accept = never

    def accept_list(value: Any) -> bool:
        if value.__class__ is not list or len(value) < least or (most is not None and len(value) > most):
            return False
        if is_unique and has_repeated(value, node):
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
    allowed = frozenset(one for one in checks.enum if isinstance(one, str)) if checks.enum else None
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


def _number(checks: ValueChecks | None, *, whole: bool) -> QuickCheck:
    is_within = _within_limits(checks)
    # pruning makes integers of the floats that are
    if whole:
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
