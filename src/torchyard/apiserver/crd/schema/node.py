"""A structural OpenAPI v3 schema, compiled into a tree for pruning, defaulting and validation.

Equal subtrees are compiled once and shared: a CRD that embeds a pod template three times compiles it once.
Descriptions are left out; OpenAPI uses the CRD's own schema.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torchyard.api.schema.types import ListType
from torchyard.apiserver.crd.schema import formats
from torchyard.apiserver.crd.schema.field_path import FieldPathError, follow
from torchyard.apiserver.crd.schema.json_schema import Schema

# The anyOf that generators add to an int-or-string; it adds no restriction.
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_RULES = "x-kubernetes-validations"
META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_LIMITS = ("maximum", "minimum", "maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")


@dataclass(slots=True, eq=False)
class ValidationRule:
    """One entry of x-kubernetes-validations; `field_path` is in the form of messages."""

    rule: str
    message: str
    message_expression: str
    reason: str
    field_path: str
    optional_old_self: bool


@dataclass(slots=True, eq=False)
class ValueChecks:
    """The value validations of a node; none of them changes the structure."""

    enum: list[Any] = field(default_factory=list)
    pattern: str = ""
    format: str = ""
    maximum: float | None = None
    exclusive_maximum: bool = False
    minimum: float | None = None
    exclusive_minimum: bool = False
    multiple_of: float | None = None
    max_length: int | None = None
    min_length: int | None = None
    max_items: int | None = None
    min_items: int | None = None
    max_properties: int | None = None
    min_properties: int | None = None
    required: tuple[str, ...] = ()
    all_of: tuple[SchemaNode, ...] = ()
    any_of: tuple[SchemaNode, ...] = ()
    one_of: tuple[SchemaNode, ...] = ()
    negated: SchemaNode | None = None


@dataclass(slots=True, eq=False)
class SchemaNode:
    """The compiled schema of one field, item or map value."""

    types: tuple[str, ...] = ()  # JSON types; ("integer", "string") for int-or-string; empty when unspecified
    properties: dict[str, SchemaNode] = field(default_factory=dict)
    additional: SchemaNode | None = None
    additional_specified: bool = False  # a schema, or `true`, or `false`
    additional_forbidden: bool = False  # `additionalProperties: false`
    items: SchemaNode | None = None
    nullable: bool = False
    preserve: bool = False
    embedded: bool = False
    int_or_string: bool = False
    default: Any = None
    has_default: bool = False
    list_type: ListType = "atomic"
    list_keys: tuple[str, ...] = ()
    map_type: str = "granular"
    checks: ValueChecks | None = None
    rules: tuple[ValidationRule, ...] = ()
    defaulted: tuple[tuple[str, SchemaNode], ...] = ()  # the properties that have a default
    # a Python type whose values are always valid, and how many checks they pass
    plain_type: type | None = None
    plain_checks: int = 0
    exact_type: type | None = None  # a Python type whose values always have the schema's type
    is_valid: Callable[[Any], bool] | None = None  # compiled by `quick_check` on first use
    is_normalized: Callable[[Any], bool] | None = None  # likewise
    counted: bool = False  # part of an alternative: the number of passed checks decides which errors are reported
    # whether this node or one below it ...
    defaults_below: bool = False
    unique_lists_below: bool = False
    embedded_below: bool = False
    rules_below: bool = False

    @property
    def type(self) -> str:
        return "" if self.int_or_string or not self.types else self.types[0]

    def children(self) -> Iterable[SchemaNode]:
        yield from self.properties.values()
        if self.items is not None:
            yield self.items
        if self.additional is not None:
            yield self.additional


class SchemaCompiler:
    """Compiles schemas into nodes, sharing equal ones."""

    def __init__(self) -> None:
        self._nodes: dict[Hashable, SchemaNode] = {}

    def compile(self, schema: Schema) -> SchemaNode:
        properties = {name: self.compile(sub) for name, sub in (schema.get("properties") or {}).items()}
        additional = schema.get("additionalProperties")
        sub_additional = self.compile(additional) if isinstance(additional, dict) else None
        items = schema.get("items")
        sub_items = self.compile(items) if isinstance(items, dict) else None
        junctors = {name: tuple(self.compile(sub) for sub in schema.get(name) or ()) for name in _JUNCTORS}
        negated = self.compile(schema["not"]) if schema.get("not") is not None else None
        key = (
            tuple((name, id(sub)) for name, sub in properties.items()),
            (id(sub_additional), additional is True, additional is False, id(sub_items), id(negated)),
            tuple(tuple(map(id, nodes)) for nodes in junctors.values()),
            hashable_json({name: value for name, value in schema.items() if name not in _NOT_IN_KEY}),
        )
        shared_node = self._nodes.get(key)
        if shared_node is not None:
            return shared_node
        node = SchemaNode(
            types=_types(schema),
            properties=properties,
            additional=sub_additional,
            additional_specified=additional is not None,
            additional_forbidden=additional is False,
            items=sub_items,
            nullable=bool(schema.get("nullable")),
            preserve=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
            embedded=bool(schema.get("x-kubernetes-embedded-resource")),
            int_or_string=bool(schema.get("x-kubernetes-int-or-string")),
            default=schema.get("default"),
            has_default=schema.get("default") is not None,
            list_type=_LIST_TYPES.get(schema.get("x-kubernetes-list-type") or "", "atomic"),
            list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
            map_type=schema.get("x-kubernetes-map-type") or "granular",
            checks=_checks(schema, junctors, negated),
            defaulted=tuple((name, sub) for name, sub in properties.items() if sub.has_default),
            rules=tuple(_rule(rule, schema) for rule in schema.get(_RULES) or ()),
        )
        node.exact_type = _EXACT.get(node.type)
        for alternative in (
            *(alternative for nodes in junctors.values() for alternative in nodes),
            *([negated] if negated else ()),
        ):
            _mark_counted(alternative)
        if node.checks is None and not node.int_or_string:
            node.plain_type, node.plain_checks = _PLAIN.get(node.type, (None, 0))
        elif node.int_or_string and schema.get("anyOf") == INT_OR_STRING and not _has_other_restrictions(schema):
            node.plain_type, node.plain_checks = str, 14
        below = list(node.children())
        node.defaults_below = node.has_default or any(child.defaults_below for child in below)
        node.unique_lists_below = node.list_type in ("set", "map") or any(child.unique_lists_below for child in below)
        node.embedded_below = node.embedded or any(child.embedded_below for child in below)
        node.rules_below = bool(node.rules) or any(child.rules_below for child in below)
        self._nodes[key] = node
        return node


# The number of checks in the validator: four for any value, two for its type, one for a string.
_EXACT = {"object": dict, "array": list, "string": str, "boolean": bool}
_PLAIN: dict[str, tuple[type, int]] = {"string": (str, 7), "boolean": (bool, 6)}
_LIST_TYPES: dict[str, ListType] = {"set": "set", "map": "map"}
_JUNCTORS = ("allOf", "anyOf", "oneOf")
_DOCUMENTATION = ("description", "title", "example", "externalDocs")
_NOT_IN_KEY = frozenset(("properties", "additionalProperties", "items", "not", *_JUNCTORS, *_DOCUMENTATION))


def _mark_counted(node: SchemaNode) -> None:
    if not node.counted:
        node.counted = True
        for child in node.children():
            _mark_counted(child)


def compile_schema(schema: Schema) -> SchemaNode:
    return SchemaCompiler().compile(schema)


def hashable_json(value: Any) -> Hashable:
    """A JSON value as a hashable key; 1, 1.0 and true are different keys."""
    if isinstance(value, dict):
        return tuple(sorted((name, hashable_json(sub)) for name, sub in value.items()))
    if isinstance(value, list):
        return ("[]", *map(hashable_json, value))
    return (type(value).__name__, value)


def _has_other_restrictions(schema: Schema) -> bool:
    """Whether an int-or-string has restrictions besides its usual anyOf."""
    return bool(set(schema) - {"x-kubernetes-int-or-string", "anyOf", "default", "nullable", *_DOCUMENTATION, _RULES})


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _checks(
    schema: Schema, junctors: dict[str, tuple[SchemaNode, ...]], negated: SchemaNode | None
) -> ValueChecks | None:
    checked_format = schema.get("format") if schema.get("format") in formats.KNOWN else ""
    named = ("enum", "pattern", "multipleOf", "required", *_LIMITS)
    if not (checked_format or negated or any(junctors.values()) or any(schema.get(name) is not None for name in named)):
        return None
    return ValueChecks(
        enum=schema.get("enum") or [],
        pattern=schema.get("pattern") or "",
        format=checked_format or "",
        maximum=schema.get("maximum"),
        exclusive_maximum=bool(schema.get("exclusiveMaximum")),
        minimum=schema.get("minimum"),
        exclusive_minimum=bool(schema.get("exclusiveMinimum")),
        multiple_of=schema.get("multipleOf"),
        max_length=schema.get("maxLength"),
        min_length=schema.get("minLength"),
        max_items=schema.get("maxItems"),
        min_items=schema.get("minItems"),
        max_properties=schema.get("maxProperties"),
        min_properties=schema.get("minProperties"),
        required=tuple(schema.get("required") or ()),
        all_of=junctors["allOf"],
        any_of=junctors["anyOf"],
        one_of=junctors["oneOf"],
        negated=negated,
    )


def _rule(rule: dict[str, Any], schema: Schema) -> ValidationRule:
    try:
        field_path = follow(rule.get("fieldPath") or "", schema)[0]
    except FieldPathError:
        field_path = ""  # rejected when the CRD is written
    return ValidationRule(
        rule=rule.get("rule") or "",
        message=rule.get("message") or "",
        message_expression=rule.get("messageExpression") or "",
        reason=rule.get("reason") or "",
        field_path=field_path,
        optional_old_self=bool(rule.get("optionalOldSelf")),
    )
