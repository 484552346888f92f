"""Compiles the rules of a schema: once to validate the CRD, and once more for its first object."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.apiserver.cel.errors import CompileError
from torchyard.apiserver.cel.library import kubernetes_library
from torchyard.apiserver.cel.program import Program, compile_expression
from torchyard.apiserver.cel.types import BOOL, STRING, CelType, optional_of
from torchyard.apiserver.crd.cel_rules.values import type_of
from torchyard.apiserver.crd.schema.node import SchemaNode, ValidationRule

SELF, OLD_SELF = "self", "oldSelf"


class RuleCompileError(Exception):
    """A rule that does not compile; `part` is `rule` or `messageExpression`."""

    def __init__(self, part: str, detail: str) -> None:
        super().__init__(detail)
        self.part = part
        self.detail = detail


@dataclass(frozen=True, slots=True)
class CompiledRule:
    rule: ValidationRule
    program: Program
    message: Program | None

    @property
    def uses_old_self(self) -> bool:
        return OLD_SELF in self.program.uses or (self.message is not None and OLD_SELF in self.message.uses)

    @property
    def name(self) -> str:
        """The name of the rule in errors: its message, or its text."""
        return self.rule.message.strip() or self.rule.rule.strip()

    @property
    def failure(self) -> str:
        """The message for a violation."""
        return self.rule.message.strip() or f"failed rule: {self.rule.rule.strip()}"


def compile_rule(rule: ValidationRule, kind: CelType) -> CompiledRule:
    """Compile a rule for values of a type. Raises RuleCompileError."""
    variables = {SELF: kind, OLD_SELF: optional_of(kind) if rule.optional_old_self else kind}
    try:
        program = compile_expression(rule.rule, variables, kubernetes_library())
    except CompileError as error:
        raise RuleCompileError("rule", f"compilation failed: {error.message}") from None
    if program.type != BOOL:
        raise RuleCompileError("rule", "cel expression must evaluate to a bool")
    message: Program | None = None
    if rule.message_expression:
        try:
            message = compile_expression(rule.message_expression, variables, kubernetes_library())
        except CompileError as error:
            raise RuleCompileError(
                "messageExpression", f"messageExpression compilation failed: {error.message}"
            ) from None
        if message.type != STRING:
            raise RuleCompileError("messageExpression", "messageExpression must evaluate to a string")
    return CompiledRule(rule, program, message)


class RuleCache:
    """The compiled rules of each schema node, compiled on first use."""

    def __init__(self) -> None:
        self._rules: dict[tuple[int, bool], tuple[CompiledRule, ...]] = {}

    def rules_for(self, node: SchemaNode, *, is_resource: bool) -> tuple[CompiledRule, ...]:
        key = (id(node), is_resource)
        rules = self._rules.get(key)
        if rules is None:
            kind = type_of(node, "self", is_resource=is_resource)
            rules = self._rules[key] = tuple(compile_rule(rule, kind) for rule in node.rules) if kind else ()
        return rules
