"""Evaluates the rules of a version on an object or an update."""

from __future__ import annotations

from typing import Any

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.errors import CostLimitExceeded, EvaluationError
from torchyard.apiserver.cel.values import NONE, Optional
from torchyard.apiserver.crd.cel_rules.compilation import OLD_SELF, SELF, CompiledRule, RuleCache
from torchyard.apiserver.crd.cel_rules.values import Converter
from torchyard.apiserver.crd.schema.node import SchemaNode
from torchyard.apiserver.crd.schema.validation import ABSENT, NO_PATH, items_by_key, list_key
from torchyard.apiserver.request.computation import NeedsThread, is_direct

# The cost limits of one rule on one value, which is upstream's, and of all rules on one object, which is a fifth of
# upstream's: about two seconds in Python.
CALL_COST_LIMIT = 1_000_000
COST_LIMIT = 2_000_000
# What the event loop spends at most: about 10 ms. An object that needs more is validated in a thread.
LOOP_COST_LIMIT = 30_000
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
MAX_MESSAGE = 5 * 1024
_BLOCKING = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete"
    " validation"
)


class RuleValidator:
    """Evaluates all rules of a version."""

    def __init__(self, root: SchemaNode) -> None:
        self._root = root
        self._rule_cache = RuleCache()
        self._converter = Converter()

    def validate(self, obj: Any, old: Any, schema_errors: list[FieldError]) -> list[FieldError]:
        """The violated rules. After schema errors that make types unreliable, a single error that says so."""
        if any(error.reason in _BLOCKING for error in schema_errors):
            return [field_errors.invalid(NO_PATH, None, _NOT_CHECKED)]
        return self._run(
            _ValidationPass(self._rule_cache, self._converter, ratcheting=True), obj, "", old, is_resource=True
        )

    def default_errors(self, value: Any, path: str) -> list[FieldError]:
        """The rules that a default value violates, evaluated as an update without changes."""
        return self._run(
            _ValidationPass(self._rule_cache, self._converter, ratcheting=False), value, path, value, is_resource=False
        )

    def _run(self, run: _ValidationPass, value: Any, path: str, old: Any, *, is_resource: bool) -> list[FieldError]:
        try:
            run.check(value, self._root, path, old, None, is_resource=is_resource)
        except CostLimitExceeded:
            run.errs.append(_error(run.at, run.kind, run.cost_message()))
        return run.errs


class RuleBudget(CostBudget):
    """The budget of all rules of one object, each of which has its own limit too."""

    __slots__ = ("_is_direct", "_remaining", "_start")

    def __init__(self) -> None:
        self._is_direct = is_direct()
        self._remaining = LOOP_COST_LIMIT if self._is_direct else COST_LIMIT  # at the start of the present rule
        self._start = self._remaining
        super().__init__(self._remaining)

    def start_rule(self) -> None:
        self._remaining -= self._start - self.left
        self.left = self._start = min(self._remaining, CALL_COST_LIMIT)

    @property
    def is_exhausted(self) -> bool:
        """Whether the budget of all rules is spent, not only that of one."""
        return self._start == self._remaining

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            if self._is_direct:
                raise NeedsThread
            raise CostLimitExceeded


class _ValidationPass:
    """One pass over a value. With `ratcheting`, an update may keep a value that violates a rule."""

    def __init__(self, rule_cache: RuleCache, converter: Converter, *, ratcheting: bool) -> None:
        self.errs: list[FieldError] = []
        self.at, self.kind, self.rule_name = "", "", ""
        self._rule_cache = rule_cache
        self._converter = converter
        self._budget = RuleBudget()
        self._ratcheting = ratcheting

    def check(
        self,
        value: Any,
        node: SchemaNode,
        path: str,
        old: Any,
        correlated: tuple[Any, Any] | None,
        *,
        is_resource: bool,
    ) -> None:
        """Check a value. `correlated` is the nearest enclosing value that can be matched with its old value."""
        if value is None or not node.rules_below:
            return
        if old is None:
            old = ABSENT
        if old is not ABSENT and self._ratcheting:
            correlated = (value, old)
        if node.rules:
            self._check_own_rules(value, node, path, old, correlated, is_resource=is_resource)
        if isinstance(value, list):
            self._check_items(value, node, path, old, correlated)
        elif isinstance(value, dict):
            olds = old if isinstance(old, dict) else {}
            for name, item in value.items():
                sub = node.properties.get(name)
                at = f"{path}.{name}" if path else name
                if sub is None:
                    sub, at = node.additional, f"{path}[{name}]"
                if sub is not None:
                    self.check(item, sub, at, olds.get(name, ABSENT), correlated, is_resource=sub.embedded)

    def _check_items(
        self, value: list[Any], node: SchemaNode, path: str, old: Any, correlated: tuple[Any, Any] | None
    ) -> None:
        items = node.items
        if items is None or not items.rules_below:
            return
        olds = items_by_key(old, node) if isinstance(old, list) and node.list_type == "map" else {}
        for index, item in enumerate(value):
            old_item = olds.get(list_key(item, node), ABSENT)
            self.check(item, items, f"{path}[{index}]", old_item, correlated, is_resource=items.embedded)

    def _check_own_rules(
        self,
        value: Any,
        node: SchemaNode,
        path: str,
        old: Any,
        correlated: tuple[Any, Any] | None,
        *,
        is_resource: bool,
    ) -> None:
        rules = self._rule_cache.rules_for(node, is_resource=is_resource)
        try:
            new_value = self._converter.convert(value, node)
            old_value = ABSENT if old is ABSENT else self._converter.convert(old, node)
        except EvaluationError as error:
            self.errs += [_error(path, node.type, _evaluation_failure(str(error), rule)) for rule in rules]
            return
        for rule in rules:
            if rule.uses_old_self and old_value is ABSENT and not rule.rule.optional_old_self:
                continue
            variables = {SELF: new_value, OLD_SELF: _old_self(old_value, rule)}
            self.at, self.kind, self.rule_name = path, node.type, rule.name
            self._budget.start_rule()
            violation = self._result(rule, variables, path, node.type)
            if violation is None:
                continue
            # Ratcheting does not apply to transition rules.
            if rule.uses_old_self or correlated is None or correlated[0] != correlated[1]:
                self.errs.append(violation)

    def _result(self, rule: CompiledRule, variables: dict[str, Any], path: str, kind: str) -> FieldError | None:
        try:
            if rule.program.evaluate(variables, self._budget) is True:
                return None
        except EvaluationError as error:
            return _error(path, kind, _evaluation_failure(str(error), rule))
        at = path
        if rule.rule.field_path:
            at = f"{path}.{rule.rule.field_path}" if path else rule.rule.field_path
        return _violation(rule.rule.reason, at, kind, self._message(rule, variables))

    def cost_message(self) -> str:
        if self._budget.is_exhausted:
            return _OUT_OF_BUDGET
        return (
            "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call"
            f" cost exceeds limit for rule: {self.rule_name}"
        )

    def _message(self, rule: CompiledRule, variables: dict[str, Any]) -> str:
        """The result of messageExpression if it is usable, or the rule's message."""
        if rule.message is None:
            return rule.failure
        try:
            message = rule.message.evaluate(variables, self._budget)
        except EvaluationError:
            return rule.failure
        message = message.strip() if isinstance(message, str) else ""
        if not message or "\n" in message or len(message.encode()) > MAX_MESSAGE:
            return rule.failure
        return message


def _old_self(old_value: Any, rule: CompiledRule) -> Any:
    if not rule.rule.optional_old_self:
        return None if old_value is ABSENT else old_value
    return NONE if old_value is ABSENT else Optional(old_value)


def _evaluation_failure(error: str, rule: CompiledRule) -> str:
    if error.startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro signature for rule:"
            f" {rule.name}"
        )
    return f"{error} evaluating rule: {rule.name}"


def _error(path: str, kind: str, detail: str) -> FieldError:
    return field_errors.invalid(path or NO_PATH, kind, detail)


def _violation(reason: str, path: str, kind: str, detail: str) -> FieldError:
    at = path or NO_PATH
    match reason:
        case "FieldValueForbidden":
            return field_errors.forbidden(at, detail)
        case "FieldValueRequired":
            return field_errors.required(at, detail)
        case "FieldValueDuplicate":
            return field_errors.duplicate(at, kind)
    return field_errors.invalid(at, kind, detail)
