"""Rules as a definition brings them: whether they compile, and whether they can be run where they stand."""

from __future__ import annotations

import json
from typing import Any

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.apiserver.crd.cel_rules.compilation import CompiledRule, RuleCompileError, compile_rule
from torchyard.apiserver.crd.cel_rules.values import type_of
from torchyard.apiserver.crd.schema.node import Schema, SchemaCompiler

_RULES = "x-kubernetes-validations"


def rule_errors(schema: Schema, path: str, known: list[FieldError]) -> list[FieldError]:
    """The faults of all rules of a structural schema, but those at or above a place that is at fault already."""
    faulty = [error.field for error in known]
    return _RuleChecker(faulty).check(schema, path, is_resource=True, uncorrelatable="")


class _RuleChecker:
    def __init__(self, faulty: list[str]) -> None:
        self._faulty = faulty
        self._compiler = SchemaCompiler()

    def check(self, schema: Schema, path: str, *, is_resource: bool, uncorrelatable: str) -> list[FieldError]:
        errs: list[FieldError] = []
        for name, sub in (schema.get("properties") or {}).items():
            errs += self._below(sub, f"{path}.properties[{name}]", uncorrelatable)
        if isinstance(schema.get("additionalProperties"), dict):
            errs += self._below(schema["additionalProperties"], f"{path}.additionalProperties", uncorrelatable)
        if isinstance(schema.get("items"), dict):
            # the items of other lists cannot be told apart from one version of an object to the next
            is_map = schema.get("x-kubernetes-list-type") == "map"
            errs += self._below(schema["items"], f"{path}.items", uncorrelatable or ("" if is_map else path))
        if schema.get(_RULES) and not any(field.startswith(path) for field in self._faulty):
            errs += self._own(schema, path, is_resource=is_resource, uncorrelatable=uncorrelatable)
        return errs

    def _below(self, schema: Schema, path: str, uncorrelatable: str) -> list[FieldError]:
        is_resource = bool(schema.get("x-kubernetes-embedded-resource"))
        return self.check(schema, path, is_resource=is_resource, uncorrelatable=uncorrelatable)

    def _own(self, schema: Schema, path: str, *, is_resource: bool, uncorrelatable: str) -> list[FieldError]:
        node = self._compiler.compile(schema)
        kind = type_of(node, "selfType", is_resource=is_resource)
        if kind is None:
            return []
        errs: list[FieldError] = []
        for index, (written, rule) in enumerate(zip(schema[_RULES], node.rules, strict=True)):
            at = f"{path}.{_RULES}[{index}]"
            try:
                compiled = compile_rule(rule, kind)
            except RuleCompileError as bad:
                message = f"Invalid value: {_shown(written)}: {bad.detail}"
                errs.append(FieldError("FieldValueInvalid", f"{at}.{bad.part}", message))
                continue
            errs += _transition_errors(compiled, written, at, uncorrelatable)
        return errs


def _transition_errors(rule: CompiledRule, written: dict[str, Any], path: str, uncorrelatable: str) -> list[FieldError]:
    if rule.uses_old_self:
        if not uncorrelatable:
            return []
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
        return [field_errors.invalid(f"{path}.rule", rule.rule.rule, detail)]
    optional = written.get("optionalOldSelf")
    if optional is None:
        return []
    return [field_errors.invalid(f"{path}.optionalOldSelf", optional, "may not be set if oldSelf is not used in rule")]


def _shown(rule: dict[str, Any]) -> str:
    """A rule as upstream prints it in a message: its own field names, and Go's JSON."""
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
