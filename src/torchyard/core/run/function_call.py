"""Calls a function of a module in a pod, as `yard run MODULE:FUNCTION` does. Its source is in the command of the pod.

A pod has this file only: it imports nothing but Python's standard library.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def main(module: str, name: str, words: list[str]) -> None:
    """Call a function with words such as `--lr=0.1`; `sys.argv` has them too."""
    sys.argv = [module, *words]
    function = _find(module, name)
    parameters = _parameters(function)
    if _reads_argv(parameters):
        result = function()
    else:
        flags = {key for key, value in parameters.items() if bool in types_of(value)}
        negated = {f"no_{key}": key for key in flags if f"no_{key}" not in parameters}
        arguments, texts = split_words(words, flags, negated)
        keywords = {key: _read(key, text, parameters) for key, text in texts.items()}
        try:
            inspect.signature(function).bind(*arguments, **keywords)
        except TypeError as error:
            sys.exit(f"{module}:{name}{inspect.signature(function)} cannot be called: {error}")
        result = function(*arguments, **keywords)
    if inspect.iscoroutine(result):
        asyncio.run(result)
    elif inspect.isgenerator(result) or inspect.isasyncgen(result):
        sys.exit(f"{module}:{name} is a generator, of which a call runs nothing")


def split_words(words: list[str], flags: set[str], negated: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Positional arguments, and keywords: `--name value`, `--name=value`, or `--name` alone for true.

    `negated` are the flags by the names that set them to false, such as `no_amp`.
    """
    arguments: list[str] = []
    keywords: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, has_value, value = word.partition("=")
        key = key[2:].replace("-", "_")
        if not word.startswith("--"):
            arguments.append(word)
        elif has_value:
            keywords[key] = value
        elif key in negated:
            keywords[negated[key]] = "false"
        else:
            takes_next = rest and (rest[0].lower() in (*_TRUE, *_FALSE) if key in flags else rest[0][:2] != "--")
            keywords[key] = rest.pop(0) if takes_next else "true"
    return arguments, keywords


def types_of(parameter: inspect.Parameter) -> set[Any]:
    """The types that a parameter may have: by its annotation, or else by its default."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        known = {"bool": bool, "int": int, "float": float, "str": str, "None": type(None), "Optional": type(None)}
        return {known[word] for word in re.findall(r"\w+", annotation) if word in known}
    if annotation is inspect.Parameter.empty:
        kind = type(parameter.default)
        return {int, float} if kind is int else {kind}
    if typing.get_origin(annotation) in (typing.Union, getattr(types, "UnionType", typing.Union)):
        return set(typing.get_args(annotation))
    return {annotation}


def _find(module: str, name: str) -> Callable[..., Any]:
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(target, part):
            sys.exit(f"{module}:{name} does not exist: {module} has no {part}")
        target = getattr(target, part)
    if not callable(target):
        sys.exit(f"{module}:{name} is not a function but of type {type(target).__name__}")
    return typing.cast("Callable[..., Any]", target)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function. A command of click, which is an object that takes anything, reads `sys.argv`."""
    parameters = inspect.signature(function).parameters
    takes_anything = all(value.kind in (value.VAR_POSITIONAL, value.VAR_KEYWORD) for value in parameters.values())
    return {} if takes_anything and not inspect.isroutine(function) else parameters


def _reads_argv(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether a function parses `sys.argv` itself: it has no parameters, or `argv` with a default alone."""
    empty = inspect.Parameter.empty
    return all(name in ("argv", "args") and value.default is not empty for name, value in parameters.items())


def _read(key: str, text: str, parameters: Mapping[str, inspect.Parameter]) -> Any:
    accepted = types_of(parameters[key]) if key in parameters else set()
    if type(None) in accepted and text == "None":
        return None
    if bool in accepted:
        if text.lower() not in (*_TRUE, *_FALSE):
            sys.exit(f"--{key} {text}: it is not true or false")
        return text.lower() in _TRUE
    for number in (int, float):
        if number in accepted:
            try:
                return number(text)
            except ValueError:
                if accepted <= {int, type(None)} or (number is float and str not in accepted):
                    sys.exit(f"--{key} {text}: it is not {'an integer' if number is int else 'a number'}")
    return text


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
