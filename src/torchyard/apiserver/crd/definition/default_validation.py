"""Defaults in a schema must be valid by that schema."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.apiserver.crd.definition.structural import sub_schemas
from torchyard.apiserver.crd.schema.json_schema import Schema
from torchyard.apiserver.crd.schema.metadata import embedded_errors
from torchyard.apiserver.crd.schema.node import SchemaCompiler
from torchyard.apiserver.crd.schema.prune import prune_value
from torchyard.apiserver.crd.schema.validation import NO_PATH, schema_errors


def default_errors(schema: Schema, path: str) -> list[FieldError]:
    """The errors of all defaults of a structural schema."""
    return _errors(schema, path, SchemaCompiler())


def _errors(schema: Schema, path: str, compiler: SchemaCompiler) -> list[FieldError]:
    errs: list[FieldError] = []
    if schema.get("default") is not None:
        errs += _value_errors(schema["default"], schema, f"{path}.default", compiler)
    for sub, level, sub_path in sub_schemas(schema, path):
        if level == "item" or "properties" in sub_path.removeprefix(path):
            errs += _errors(sub, sub_path, compiler)
    return errs


def _value_errors(value: Any, schema: Schema, path: str, compiler: SchemaCompiler) -> list[FieldError]:
    node = compiler.compile(schema)
    errs: list[FieldError] = []
    if prune_value(copy.deepcopy(value), node) != value:
        errs.append(field_errors.invalid(path, value, "must not have unknown fields"))
    embedded = embedded_errors(value, node, path)
    if embedded:
        return errs + embedded
    for error in schema_errors(value, node):
        # the value is validated on its own, so that only the field has the full path
        field = path if error.field in ("", NO_PATH) else f"{path}.{error.field}"
        errs.append(FieldError(error.reason, field, error.message))
    if not errs and node.rules_below:
        from torchyard.apiserver.crd.cel_rules.compilation import RuleCompileError
        from torchyard.apiserver.crd.cel_rules.validation import RuleValidator

        with suppress(RuleCompileError):  # reported at the rule itself
            errs += RuleValidator(node).default_errors(value, path)
    return errs
