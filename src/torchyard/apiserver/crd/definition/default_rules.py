"""Defaults in a schema must be values that the schema itself would take."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

from torchyard.api import faults
from torchyard.api.faults import Fault
from torchyard.apiserver.crd.definition.structural import sub_schemas
from torchyard.apiserver.crd.schema.metadata import embedded_faults
from torchyard.apiserver.crd.schema.node import Compiler, Schema
from torchyard.apiserver.crd.schema.prune import prune_value
from torchyard.apiserver.crd.schema.validation import NO_PATH, schema_faults


def default_faults(schema: Schema, path: str) -> list[Fault]:
    """The faults of all defaults of a structural schema."""
    return _faults(schema, path, Compiler())


def _faults(schema: Schema, path: str, compiler: Compiler) -> list[Fault]:
    found: list[Fault] = []
    if schema.get("default") is not None:
        found += _value_faults(schema["default"], schema, f"{path}.default", compiler)
    for sub, level, sub_path in sub_schemas(schema, path):
        if level == "item" or "properties" in sub_path.removeprefix(path):
            found += _faults(sub, sub_path, compiler)
    return found


def _value_faults(value: Any, schema: Schema, path: str, compiler: Compiler) -> list[Fault]:
    node = compiler.compile(schema)
    found: list[Fault] = []
    if prune_value(copy.deepcopy(value), node) != value:
        found.append(faults.invalid(path, value, "must not have unknown fields"))
    wrong = embedded_faults(value, node, path)
    if wrong:
        return found + wrong
    for fault in schema_faults(value, node):
        # the value is checked by itself, so only the field tells where it stands
        field = path if fault.field in ("", NO_PATH) else f"{path}.{fault.field}"
        found.append(Fault(fault.reason, field, fault.message))
    if not found and node.rules_below:
        from torchyard.apiserver.crd.rules.compiled import BadRule
        from torchyard.apiserver.crd.rules.validation import RuleSet

        with suppress(BadRule):  # told where the rule stands
            found += RuleSet(node).default_faults(value, path)
    return found
