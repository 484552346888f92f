"""Validation of the rules in a CRD: whether they compile, and whether they may use oldSelf at their position."""

from __future__ import annotations

import json
from typing import Any

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.apiserver.crd.cel_rules.compilation import CompiledRule, RuleCompileError, compile_rule
from torchyard.apiserver.crd.cel_rules.values import type_of
from torchyard.apiserver.crd.schema.json_schema import Schema
from torchyard.apiserver.crd.schema.node import SchemaCompiler

_RULES = "x-kubernetes-validations"


def rule_errors(schema: Schema, path: str, schema_errors: list[FieldError]) -> list[FieldError]:
    """The errors of all rules of a structural schema, except at or above a field that is invalid already."""
    invalid_fields = [error.field for error in schema_errors]
    return _RuleChecker(invalid_fields).check(schema, path, is_resource=True, uncorrelatable="")


class _RuleChecker:
    def __init__(self, invalid_fields: list[str]) -> None:
        self._invalid_fields = invalid_fields
        self._compiler = SchemaCompiler()

    def check(self, schema: Schema, path: str, *, is_resource: bool, uncorrelatable: str) -> list[FieldError]:
        errs: list[FieldError] = []
        for name, sub in (schema.get("properties") or {}).items():
            errs += self._check_below(sub, f"{path}.properties[{name}]", uncorrelatable)
        if isinstance(schema.get("additionalProperties"), dict):
            errs += self._check_below(schema["additionalProperties"], f"{path}.additionalProperties", uncorrelatable)
        if isinstance(schema.get("items"), dict):
            # items of other lists cannot be correlated with those of the old object
            is_map = schema.get("x-kubernetes-list-type") == "map"
            errs += self._check_below(schema["items"], f"{path}.items", uncorrelatable or ("" if is_map else path))
        if schema.get(_RULES) and not any(field.startswith(path) for field in self._invalid_fields):
            errs += self._check_own_rules(schema, path, is_resource=is_resource, uncorrelatable=uncorrelatable)
        return errs

    def _check_below(self, schema: Schema, path: str, uncorrelatable: str) -> list[FieldError]:
        is_resource = bool(schema.get("x-kubernetes-embedded-resource"))
        return self.check(schema, path, is_resource=is_resource, uncorrelatable=uncorrelatable)

    def _check_own_rules(
        self, schema: Schema, path: str, *, is_resource: bool, uncorrelatable: str
    ) -> list[FieldError]:
        node = self._compiler.compile(schema)
        kind = type_of(node, "selfType", is_resource=is_resource)
        if kind is None:
            return []
        errs: list[FieldError] = []
        for index, (source_rule, rule) in enumerate(zip(schema[_RULES], node.rules, strict=True)):
            at = f"{path}.{_RULES}[{index}]"
            try:
                compiled = compile_rule(rule, kind)
            except RuleCompileError as error:
                message = f"Invalid value: {_format_rule(source_rule)}: {error.detail}"
                errs.append(FieldError("FieldValueInvalid", f"{at}.{error.part}", message))
                continue
            errs += _transition_errors(compiled, source_rule, at, uncorrelatable)
        return errs


def _transition_errors(
    rule: CompiledRule, source_rule: dict[str, Any], path: str, uncorrelatable: str
) -> list[FieldError]:
    if rule.uses_old_self:
        if not uncorrelatable:
            return []
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
        return [field_errors.invalid(f"{path}.rule", rule.rule.rule, detail)]
    optional = source_rule.get("optionalOldSelf")
    if optional is None:
        return []
    return [field_errors.invalid(f"{path}.optionalOldSelf", optional, "may not be set if oldSelf is not used in rule")]


def _format_rule(rule: dict[str, Any]) -> str:
    """A rule as upstream prints it in a message: with its internal field names, as Go's JSON."""
    text = json.dumps(
        {
            "Rule": rule.get("rule") or "",
            "Message": rule.get("message") or "",
            "MessageExpression": rule.get("messageExpression") or "",
            "Reason": rule.get("reason"),
            "FieldPath": rule.get("fieldPath") or "",
            "OptionalOldSelf": rule.get("optionalOldSelf"),
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
