"""A Python function as files that a pod can run: by its import path, or by its source if only this process has it."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import inspect
import json
import math
import sys
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torchyard.api.errors import YardError

ENTRY = "torchyard_entry.py"
SOURCE = "torchyard_function"
RESULT, RESULT_PROBLEM = "torchyard.dev/result", "torchyard.dev/result-problem"
# Calls the function with `--name=value`, each value JSON or else text, and leaves the result of rank 0 as the
# termination message, of which Kubernetes keeps 4096 bytes.
_ENTRY = '''"""Calls a function for the Torchyard SDK."""
import asyncio, importlib, inspect, json, os, sys

def read(value):
    try:
        return json.loads(value)
    except ValueError:
        return value

def report(result):
    try:
        text = json.dumps({{{result!r}: result}})
    except (TypeError, ValueError) as error:
        text = json.dumps({{{problem!r}: f"the result is not JSON: {{error}}"}})
    if len(text.encode()) > 4096:
        size = len(text.encode())
        text = json.dumps({{{problem!r}: f"the result has {{size}} bytes, more than the 4096 that Kubernetes keeps"}})
    try:
        with open("/dev/termination-log", "w") as file:
            file.write(text)
    except OSError as error:
        print(f"the result is not kept: {{error}}", file=sys.stderr)

sys.path.insert(0, os.getcwd())
arguments = (word.removeprefix("--").partition("=") for word in sys.argv[1:])
values = {{name: read(value) for name, _, value in arguments}}
function = importlib.import_module({module!r})
for part in {name!r}.split("."):
    function = getattr(function, part)
result = function(**values)
if inspect.iscoroutine(result):
    result = asyncio.run(result)
if int(os.environ.get("RANK", "0")) == 0:
    report(result)
'''
Function = Callable[..., Any]


def check_function(function: Function) -> None:
    """Raise YardError for what is not a function that a pod can have."""
    if not _is_function(function) or function.__name__ == "<lambda>":
        raise _cannot(function, "it is not a function with a name", "pass a function that `def` defines")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _cannot(function, "it is a generator, of which a call runs nothing", "return a value instead of `yield`")
    is_decorated = hasattr(function, "__wrapped__")
    if "<locals>" in function.__qualname__ or (not is_decorated and function.__closure__):
        raise _cannot(function, "it is defined in another function", "define it at the top of its module")


def function_files(function: Function) -> dict[str, str]:
    """The files to add to the workspace. Raises YardError for a function that a pod cannot have."""
    check_function(function)
    if function.__module__ != "__main__" and importlib.util.find_spec(function.__module__) is not None:
        return {ENTRY: _entry(function.__module__, function.__qualname__)}
    return {ENTRY: _entry(SOURCE, function.__name__), f"{SOURCE}.py": _Source(_namespace(function)).of(function)}


def _is_function(value: Any) -> bool:
    """Whether a value comes from `def`, perhaps with decorators such as `functools.cache`."""
    return isinstance(value, types.FunctionType) or isinstance(getattr(value, "__wrapped__", None), types.FunctionType)


def _namespace(function: Function) -> Mapping[str, Any]:
    """The global names of the module of a function; a decorator may be of another module."""
    return cast("types.FunctionType", inspect.unwrap(function)).__globals__


def function_arguments(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """The call as `--name=value` options. Raises TypeError for arguments that the function does not take."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = inspect.signature(function).parameters[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise _cannot(function, f"its parameter {name} has no keyword", "pass named arguments")
        named |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return tuple(f"--{name}={_text(function, name, value)}" for name, value in named.items())


def _text(function: Function, name: str, value: Any) -> str:
    """The value as a person would write it; JSON where that would be read as another value."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise _cannot(
            function, f"its argument {name} is not JSON: {error}", "pass numbers, text, lists, dicts"
        ) from None


def _entry(module: str, name: str) -> str:
    return _ENTRY.format(module=module, name=name, result=RESULT, problem=RESULT_PROBLEM)


class _Source:
    """The source of a function of `__main__`, with the imports, constants, functions and classes it uses."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._parts: dict[str, str] = {}

    def of(self, function: Function) -> str:
        self._add(function.__name__, function)
        return "\n\n".join(self._parts.values()) + "\n"

    def _add(self, name: str, value: Any) -> None:
        if name in self._parts:
            return
        self._parts[name] = ""  # a function may call itself
        text = self._import(name, value)
        if text is None:
            text = self._alias(name, value) or _own_source(name, value)
            for used in _names(text):
                if used in self._namespace and not hasattr(builtins, used):
                    self._add(used, self._namespace[used])
            self._add_submodules(text)
        del self._parts[name]  # what it needs comes first
        self._parts[name] = text

    def _alias(self, name: str, value: Any) -> str | None:
        """`name = other` for another name of a function or class; its source only defines its own."""
        own = getattr(value, "__name__", name)
        if own in (name, "<lambda>") or not isinstance(value, (types.FunctionType, type)):
            return None
        if self._namespace.get(own) is not value:
            raise YardError(
                f"{name} cannot be sent to the pods: it was defined as {own}, which is another object now",
                hint="define it under its own name, or put it into a module of the folder",
                code="BadFunction",
            )
        return f"{name} = {own}"

    def _add_submodules(self, text: str) -> None:
        """Import `a.b` where a source reads it: importing `a` alone need not load it."""
        for first, *attributes in _attribute_chains(text):
            module = self._namespace.get(first)
            for attribute in attributes:
                module = getattr(module, attribute, None) if isinstance(module, types.ModuleType) else None
                if not isinstance(module, types.ModuleType) or sys.modules.get(module.__name__) is not module:
                    break
                # without a name, which might be that of something else in the program
                self._parts.setdefault(f"import {module.__name__}", f"__import__({module.__name__!r})")

    @staticmethod
    def _import(name: str, value: Any) -> str | None:
        if isinstance(value, types.ModuleType):
            return f"import {value.__name__} as {name}"
        module = getattr(value, "__module__", None)
        qualified = getattr(value, "__qualname__", "")
        if isinstance(module, str) and module not in ("__main__", "builtins") and qualified.isidentifier():
            return f"from {module} import {qualified} as {name}"
        if module == "builtins" and getattr(builtins, qualified, None) is value:
            return f"{name} = {qualified}"
        # not of a subclass, such as an IntEnum or a scalar of NumPy, whose repr is not its source
        if type(value) in (bool, int, float, str, bytes, type(None)):
            is_literal = not isinstance(value, float) or math.isfinite(value)
            return f"{name} = {value!r}" if is_literal else f"{name} = float({str(value)!r})"
        return None


def _own_source(name: str, value: Any) -> str:
    if not _is_function(value) and not isinstance(value, type):
        raise YardError(
            f"{name} cannot be sent to the pods: it is a {type(value).__name__} of this process",
            hint="create it in the function, or put the function into a module of the folder",
            code="BadFunction",
        )
    try:
        return textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError):
        raise _cannot(value, "its source is not available", "put it into a module of the folder") from None


def _names(source: str) -> list[str]:
    """The names that a source reads and does not set itself, in a stable order."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return sorted({node.id for node in names if isinstance(node.ctx, ast.Load)} - own)


def _attribute_chains(source: str) -> list[list[str]]:
    """The names `a.b.c` that a source reads, as their parts."""
    chains: list[list[str]] = []
    for node in ast.walk(ast.parse(source)):
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name):
            chains.append([inner.id, *parts])
    return chains


def _cannot(function: Any, reason: str, hint: str) -> YardError:
    name = getattr(function, "__qualname__", repr(function))
    return YardError(f"{name} cannot be sent to the pods: {reason}", hint=hint, code="BadFunction")
