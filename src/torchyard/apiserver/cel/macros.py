"""Expansion of macros: calls whose arguments are not evaluated as they are."""

from __future__ import annotations

from torchyard.apiserver.cel.ast import BindExpr, ComprehensionExpr, Expr, IdentExpr, SelectExpr


class MacroError(Exception):
    """A macro with the wrong kind of argument."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


_NOT_AN_IDENTIFIER = "argument must be a simple name"
# name -> argument counts, with one variable or two (index and item, key and value) before the body
_ONE_VARIABLE = {"all": (2,), "exists": (2,), "exists_one": (2,), "existsOne": (2,), "filter": (2,), "map": (2, 3)}
_TWO_VARIABLES = {
    "all": (3,),
    "exists": (3,),
    "existsOne": (3,),
    "transformList": (3, 4),
    "transformMap": (3, 4),
    "transformMapEntry": (3, 4),
}


def expand(offset: int, name: str, args: list[Expr], target: Expr | None) -> Expr | None:
    """The expansion of a call, or None if it is not a macro."""
    if target is None:
        return _has(offset, args) if name == "has" and len(args) == 1 else None
    if name in ("optMap", "optFlatMap") and len(args) == 2:
        return BindExpr(offset, _variable(args[0]), target, args[1], flat=name == "optFlatMap")
    if len(args) in _ONE_VARIABLE.get(name, ()):
        return _comprehension(offset, name, args, target, 1)
    if len(args) in _TWO_VARIABLES.get(name, ()):
        return _comprehension(offset, name, args, target, 2)
    return None


def _has(offset: int, args: list[Expr]) -> Expr:
    (arg,) = args
    if not isinstance(arg, SelectExpr) or arg.test:
        raise MacroError(arg.offset, "invalid argument to has() macro")
    return SelectExpr(offset, arg.operand, arg.field, test=True)


def _comprehension(offset: int, name: str, args: list[Expr], target: Expr, count: int) -> Expr:
    error = "argument is not an identifier" if name in ("map", "filter") else _NOT_AN_IDENTIFIER
    variables = tuple(_variable(arg, error) for arg in args[:count])
    if len(set(variables)) != count:
        raise MacroError(args[1].offset, f"duplicate variable name: {variables[1]}")
    *condition, step = args[count:]
    kind = {"exists_one": "existsOne", "transformList": "map"}.get(name, name)
    return ComprehensionExpr(offset, kind, target, variables, step, condition[0] if condition else None)


def _variable(node: Expr, error: str = _NOT_AN_IDENTIFIER) -> str:
    if not isinstance(node, IdentExpr):
        raise MacroError(node.offset, error)
    return node.name
