"""Running rules on an object, or on a change of one."""

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
from torchyard.apiserver.crd.schema.validation import ABSENT, NO_PATH, by_keys, list_key

# What all rules may cost on one object: a second of a slow machine at worst.
COST_LIMIT = 1_000_000
MAX_MESSAGE = 5 * 1024
_BLOCKING = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete"
    " validation"
)


class RuleValidator:
    """All rules of a version."""

    def __init__(self, root: SchemaNode) -> None:
        self._root = root
        self._book = RuleCache()
        self._converter = Converter()

    def validate(self, obj: Any, old: Any, known: list[FieldError]) -> list[FieldError]:
        """The rules that do not hold. Where the schema's own checks failed so that rules cannot trust types, that."""
        if any(error.reason in _BLOCKING for error in known):
            return [field_errors.invalid(NO_PATH, None, _NOT_CHECKED)]
        return self._run(_ValidationPass(self._book, self._converter, lenient=True), obj, "", old, is_resource=True)

    def default_errors(self, value: Any, path: str) -> list[FieldError]:
        """The rules a default breaks, taken as an object that does not change."""
        return self._run(
            _ValidationPass(self._book, self._converter, lenient=False), value, path, value, is_resource=False
        )

    def _run(self, run: _ValidationPass, value: Any, path: str, old: Any, *, is_resource: bool) -> list[FieldError]:
        try:
            run.check(value, self._root, path, old, None, is_resource=is_resource)
        except CostLimitExceeded:
            run.found.append(_error(run.at, run.kind, run.stopped))
        return run.found


class _ValidationPass:
    """One pass over a value. A lenient one lets pass what an update leaves as it was."""

    def __init__(self, book: RuleCache, converter: Converter, *, lenient: bool) -> None:
        self.found: list[FieldError] = []
        self.at, self.kind, self.stopped = "", "", ""
        self._book = book
        self._converter = converter
        self._budget = CostBudget(COST_LIMIT)
        self._lenient = lenient

    def check(
        self, value: Any, node: SchemaNode, path: str, old: Any, anchor: tuple[Any, Any] | None, *, is_resource: bool
    ) -> None:
        """`anchor` is the nearest value above that can be told from its old self: while it is unchanged, so is this."""
        if value is None or not node.rules_below:
            return
        if old is None:
            old = ABSENT
        if old is not ABSENT and self._lenient:
            anchor = (value, old)
        if node.rules:
            self._own(value, node, path, old, anchor, is_resource=is_resource)
        if isinstance(value, list):
            self._items(value, node, path, old, anchor)
        elif isinstance(value, dict):
            olds = old if isinstance(old, dict) else {}
            for name, item in value.items():
                sub = node.properties.get(name)
                at = f"{path}.{name}" if path else name
                if sub is None:
                    sub, at = node.additional, f"{path}[{name}]"
                if sub is not None:
                    self.check(item, sub, at, olds.get(name, ABSENT), anchor, is_resource=sub.embedded)

    def _items(self, value: list[Any], node: SchemaNode, path: str, old: Any, anchor: tuple[Any, Any] | None) -> None:
        items = node.items
        if items is None or not items.rules_below:
            return
        olds = by_keys(old, node) if isinstance(old, list) and node.list_type == "map" else {}
        for index, item in enumerate(value):
            before = olds.get(list_key(item, node), ABSENT)
            self.check(item, items, f"{path}[{index}]", before, anchor, is_resource=items.embedded)

    def _own(
        self, value: Any, node: SchemaNode, path: str, old: Any, anchor: tuple[Any, Any] | None, *, is_resource: bool
    ) -> None:
        rules = self._book.of(node, is_resource=is_resource)
        try:
            now = self._converter.convert(value, node)
            before = ABSENT if old is ABSENT else self._converter.convert(old, node)
        except EvaluationError as error:
            self.found += [_error(path, node.type, _failed(str(error), rule)) for rule in rules]
            return
        for rule in rules:
            if rule.uses_old_self and before is ABSENT and not rule.rule.optional_old_self:
                continue
            variables = {SELF: now, OLD_SELF: _old_self(before, rule)}
            self.at, self.kind = path, node.type
            self.stopped = (
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call"
                f" cost exceeds limit for rule: {rule.name}"
            )
            violation = self._result(rule, variables, path, node.type)
            if violation is None:
                continue
            # A rule about the change itself is never let pass.
            if rule.uses_old_self or anchor is None or anchor[0] != anchor[1]:
                self.found.append(violation)

    def _result(self, rule: CompiledRule, variables: dict[str, Any], path: str, kind: str) -> FieldError | None:
        try:
            if rule.program.evaluate(variables, self._budget) is True:
                return None
        except EvaluationError as error:
            return _error(path, kind, _failed(str(error), rule))
        at = path
        if rule.rule.field_path:
            at = f"{path}.{rule.rule.field_path}" if path else rule.rule.field_path
        return _for_reason(rule.rule.reason, at, kind, self._message(rule, variables))

    def _message(self, rule: CompiledRule, variables: dict[str, Any]) -> str:
        """The rule's own expression, if it comes to a usable sentence."""
        if rule.message is None:
            return rule.failure
        try:
            said = rule.message.evaluate(variables, self._budget)
        except EvaluationError:
            return rule.failure
        said = said.strip() if isinstance(said, str) else ""
        if not said or "\n" in said or len(said.encode()) > MAX_MESSAGE:
            return rule.failure
        return said


def _old_self(before: Any, rule: CompiledRule) -> Any:
    if not rule.rule.optional_old_self:
        return None if before is ABSENT else before
    return NONE if before is ABSENT else Optional(before)


def _failed(error: str, rule: CompiledRule) -> str:
    if error.startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro signature for rule:"
            f" {rule.name}"
        )
    return f"{error} evaluating rule: {rule.name}"


def _error(path: str, kind: str, detail: str) -> FieldError:
    return field_errors.invalid(path or NO_PATH, kind, detail)


def _for_reason(reason: str, path: str, kind: str, detail: str) -> FieldError:
    at = path or NO_PATH
    match reason:
        case "FieldValueForbidden":
            return field_errors.forbidden(at, detail)
        case "FieldValueRequired":
            return field_errors.required(at, detail)
        case "FieldValueDuplicate":
            return field_errors.duplicate(at, kind)
    return field_errors.invalid(at, kind, detail)
