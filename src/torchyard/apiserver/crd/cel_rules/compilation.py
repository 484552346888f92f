"""The rules of a schema, compiled: once when the definition is checked, once more when its first object comes."""

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
        """How errors call the rule: its message, or itself."""
        return self.rule.message.strip() or self.rule.rule.strip()

    @property
    def failure(self) -> str:
        """What is said when it does not hold."""
        return self.rule.message.strip() or f"failed rule: {self.rule.rule.strip()}"


def compile_rule(rule: ValidationRule, kind: CelType) -> CompiledRule:
    """One rule for values of a type. Raises BadRule."""
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
    """The compiled rules of each place of a schema, compiled when first asked for."""

    def __init__(self) -> None:
        self._rules: dict[tuple[int, bool], tuple[CompiledRule, ...]] = {}

    def of(self, node: SchemaNode, *, is_resource: bool) -> tuple[CompiledRule, ...]:
        key = (id(node), is_resource)
        found = self._rules.get(key)
        if found is None:
            kind = type_of(node, "self", is_resource=is_resource)
            found = self._rules[key] = tuple(compile_rule(rule, kind) for rule in node.rules) if kind else ()
        return found
