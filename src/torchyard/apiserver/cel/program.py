"""The interface of this package: `compile_expression` and the `Program` it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.apiserver.cel.compiler import CompiledExpr, ExpressionCompiler, node_count
from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.errors import CompileError, EvaluationError, Issue
from torchyard.apiserver.cel.functions import Library
from torchyard.apiserver.cel.parser import parse
from torchyard.apiserver.cel.runtime import Frame
from torchyard.apiserver.cel.types import CelType


class Program:
    """A compiled expression. `uses` has the names of the variables it refers to."""

    def __init__(
        self, compiled: CompiledExpr, names: tuple[str, ...], slots: int, uses: frozenset[str], cost: int
    ) -> None:
        self.type = compiled.type
        self.uses = uses
        self._run = compiled.run
        self._names = names
        self._slots = slots
        self._cost = cost  # of one evaluation without the iterations of comprehensions

    def evaluate(self, variables: Mapping[str, Any], budget: CostBudget) -> Any:
        """The value. Raises EvaluationError without one, CostLimitExceeded beyond the budget."""
        budget.spend(self._cost)
        slots: list[Any] = [None] * self._slots
        for slot, name in enumerate(self._names):
            slots[slot] = variables.get(name)
        try:
            return self._run(Frame(slots, budget))
        except RecursionError:
            raise EvaluationError("expression nested too deeply") from None


def compile_expression(source: str, variables: Mapping[str, CelType], library: Library) -> Program:
    """Compile an expression over typed variables. Raises CompileError."""
    node = parse(source)
    compiler = ExpressionCompiler(source, variables, library)
    try:
        compiled = compiler.visit(node)
    except RecursionError:
        raise CompileError(source, [Issue(0, "expression nested too deeply")]) from None
    if compiler.issues or compiler.mixed_literals:
        raise CompileError(source, compiler.issues or compiler.mixed_literals)
    final = CompiledExpr(compiler.types.resolve(compiled.type), compiled.run)
    return Program(final, tuple(variables), compiler.slots, frozenset(compiler.uses), node_count(node))
