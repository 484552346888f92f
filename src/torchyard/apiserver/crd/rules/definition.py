"""Rules as a definition brings them: whether they compile, and whether they can be run where they stand."""

from __future__ import annotations

import json
from typing import Any

from torchyard.api import faults
from torchyard.api.faults import Fault
from torchyard.apiserver.crd.rules.compiled import BadRule, CompiledRule, compile_rule
from torchyard.apiserver.crd.rules.values import type_of
from torchyard.apiserver.crd.schema.node import Compiler, Schema

_RULES = "x-kubernetes-validations"


def rule_faults(schema: Schema, path: str, known: list[Fault]) -> list[Fault]:
    """The faults of all rules of a structural schema, but those at or above a place that is at fault already."""
    faulty = [fault.field for fault in known]
    return _Walk(faulty).faults(schema, path, is_resource=True, uncorrelatable="")


class _Walk:
    def __init__(self, faulty: list[str]) -> None:
        self._faulty = faulty
        self._compiler = Compiler()

    def faults(self, schema: Schema, path: str, *, is_resource: bool, uncorrelatable: str) -> list[Fault]:
        found: list[Fault] = []
        for name, sub in (schema.get("properties") or {}).items():
            found += self._below(sub, f"{path}.properties[{name}]", uncorrelatable)
        if isinstance(schema.get("additionalProperties"), dict):
            found += self._below(schema["additionalProperties"], f"{path}.additionalProperties", uncorrelatable)
        if isinstance(schema.get("items"), dict):
            # the items of other lists cannot be told apart from one version of an object to the next
            is_map = schema.get("x-kubernetes-list-type") == "map"
            found += self._below(schema["items"], f"{path}.items", uncorrelatable or ("" if is_map else path))
        if schema.get(_RULES) and not any(field.startswith(path) for field in self._faulty):
            found += self._own(schema, path, is_resource=is_resource, uncorrelatable=uncorrelatable)
        return found

    def _below(self, schema: Schema, path: str, uncorrelatable: str) -> list[Fault]:
        is_resource = bool(schema.get("x-kubernetes-embedded-resource"))
        return self.faults(schema, path, is_resource=is_resource, uncorrelatable=uncorrelatable)

    def _own(self, schema: Schema, path: str, *, is_resource: bool, uncorrelatable: str) -> list[Fault]:
        node = self._compiler.compile(schema)
        kind = type_of(node, "selfType", is_resource=is_resource)
        if kind is None:
            return []
        found: list[Fault] = []
        for index, (written, rule) in enumerate(zip(schema[_RULES], node.rules, strict=True)):
            at = f"{path}.{_RULES}[{index}]"
            try:
                compiled = compile_rule(rule, kind)
            except BadRule as bad:
                message = f"Invalid value: {_shown(written)}: {bad.detail}"
                found.append(Fault("FieldValueInvalid", f"{at}.{bad.part}", message))
                continue
            found += _transition_faults(compiled, written, at, uncorrelatable)
        return found


def _transition_faults(rule: CompiledRule, written: dict[str, Any], path: str, uncorrelatable: str) -> list[Fault]:
    if rule.uses_old_self:
        if not uncorrelatable:
            return []
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
        return [faults.invalid(f"{path}.rule", rule.rule.rule, detail)]
    optional = written.get("optionalOldSelf")
    if optional is None:
        return []
    return [faults.invalid(f"{path}.optionalOldSelf", optional, "may not be set if oldSelf is not used in rule")]


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
