"""Where in the source of a program a loop or a function is."""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@lru_cache(maxsize=16)
def _parse(file: str, lines: tuple[str, ...]) -> ast.Module | None:
    try:
        return ast.parse("".join(lines), file)
    except (SyntaxError, ValueError):
        return None


def scope_of(code: types.CodeType, variables: dict[str, Any]) -> ast.AST | None:
    """Return the part of a program that a code object was compiled from; None if there is no source.

    Args:
        code: the code object.
        variables: the global variables of its module.
    """
    tree = _parse(code.co_filename, tuple(linecache.getlines(code.co_filename, variables)))
    if tree is None:
        return None
    if code.co_name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


def find_loops(frame: types.FrameType) -> tuple[ast.For, ast.For] | None:
    """Return the loop of a program that asks for its next step, and the one over epochs around it, or the same again.

    None if there is no source, or no `for` loop.
    """
    scope = scope_of(frame.f_code, frame.f_globals)
    if scope is None:
        return None
    lines_of = [
        (loop, range(loop.iter.lineno, (loop.iter.end_lineno or loop.iter.lineno) + 1)) for loop in _loops(scope)
    ]
    innermost = next((loop for loop, lines in lines_of if frame.f_lineno in lines), None)
    if innermost is None:
        return None
    for outer in _loops(scope):
        inside = any(inner is innermost for inner in ast.walk(outer)) and outer is not innermost
        names = {node.id for node in ast.walk(outer.target) if isinstance(node, ast.Name)}
        if inside and any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(innermost.iter)):
            return innermost, outer
    return innermost, innermost


def _loops(scope: ast.AST) -> Iterator[ast.For]:
    """Yield the loops of a function, but not those of functions in it; outer ones first."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, DEFINITIONS):
            continue
        if isinstance(node, ast.For):
            yield node
        yield from _loops(node)


def name_of_self(frame: types.FrameType) -> str | None:
    """Return how a method calls its object; None for a function."""
    code = frame.f_code
    first = code.co_varnames[0] if code.co_argcount else None
    owner = frame.f_locals.get(first) if first else None
    named = getattr(type(owner), code.co_name, None)
    return first if callable(named) and getattr(inspect.unwrap(named), "__code__", None) is code else None
