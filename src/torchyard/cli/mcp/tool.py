"""What a tool is: a name, the schema of its arguments, and the command line that they stand for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.api.errors import YardError
from torchyard.api.suggestions import closest

Arguments = Mapping[str, Any]
# Names, paths, MODULE:FUNCTION: never an option.
_POSITIONAL = re.compile(r"[^-\s].*")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
# What arrays and objects hold: the words of a command line, for which a number stands as well.
_WORD = ("string", "number")
# What no command line can hold: NUL, and halves of characters, which JSON can write.
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a tool. `option` is the option of the command; '' for what the tool's own function places.

    lists: the values of an object may also be lists, which the command line separates with commas.
    """

    type: str
    description: str
    option: str = ""
    required: bool = False
    lists: bool = False

    def schema(self) -> dict[str, Any]:
        word = {"type": list(_WORD)}
        value = {"anyOf": [word, {"type": "array", "items": word}]} if self.lists else word
        items = {"items": word} if self.type == "array" else {}
        values = {"additionalProperties": value} if self.type == "object" else {}
        return {"type": self.type, "description": self.description, **items, **values}

    def check(self, name: str, value: Any) -> None:
        """Raise YardError for a value that the schema does not allow, or that no command line can hold."""
        _check_type(name, value, (self.type,))
        if isinstance(value, list):
            _check_words(name, value)
        if isinstance(value, dict):
            for key, item in value.items():
                _check_key(name, key)
                if self.lists and isinstance(item, list):
                    _check_list(f"{name}.{key}", item)
                else:
                    _check_type(f"{name}.{key}", item, _WORD)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `command` gives the verb and what stands behind its options, from the arguments.

    writes: it changes the cluster; destructive: it deletes or interrupts something.
    """

    name: str
    description: str
    parameters: Mapping[str, Parameter]
    command: Callable[[Arguments], tuple[list[str], list[str]]]
    writes: bool = False
    destructive: bool = False
    seconds: float = 60.0

    def definition(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: parameter.schema() for name, parameter in self.parameters.items()},
            "additionalProperties": False,
        }
        if required := [name for name, parameter in self.parameters.items() if parameter.required]:
            schema["required"] = required
        hints = {"readOnlyHint": not self.writes, "openWorldHint": False}
        if self.writes:
            hints["destructiveHint"] = self.destructive
        return {"name": self.name, "description": self.description, "inputSchema": schema, "annotations": hints}

    def command_line(self, arguments: Arguments, cluster: list[str]) -> list[str]:
        """The words behind `yard`. Raises YardError for arguments that the schema does not allow."""
        self._check(arguments)
        verb, behind = self.command(arguments)
        words = [*verb, *cluster]
        for name, parameter in self.parameters.items():
            if parameter.option and name in arguments:
                words += _option(parameter.option, arguments[name])
        return [*words, "--", *behind] if behind else words

    def _check(self, arguments: Arguments) -> None:
        for name, value in arguments.items():
            parameter = self.parameters.get(name)
            if parameter is None:
                similar = closest(name, list(self.parameters))
                known = f"did you mean {similar}?" if similar else f"it has {', '.join(self.parameters) or 'none'}"
                raise YardError(f"{self.name} has no argument {name}", hint=known, code="BadOption")
            parameter.check(name, value)
        for name, parameter in self.parameters.items():
            if parameter.required and name not in arguments:
                raise YardError(f"{self.name} needs the argument {name}", hint=parameter.description, code="BadOption")


def _check_type(field: str, value: Any, types: Sequence[str]) -> None:
    allowed = tuple(type_ for name in types for type_ in _TYPES[name])
    # of Python, and not of JSON, a boolean is an integer
    if not isinstance(value, allowed) or (isinstance(value, bool) and "boolean" not in types):
        raise YardError(f"{field}: it must be of type {' or '.join(types)}", code="BadOption")
    if isinstance(value, float) and not math.isfinite(value):
        raise YardError(f"{field}: it must be a finite number", hint=f'write "{value}" as a string', code="BadOption")
    if isinstance(value, str) and _UNUSABLE.search(value):
        raise YardError(f"{field}: it has a NUL or an unpaired surrogate", hint="leave it out", code="BadOption")


def _check_words(field: str, items: list[Any]) -> None:
    for number, item in enumerate(items):
        _check_type(f"{field}[{number}]", item, _WORD)


def _check_list(field: str, items: list[Any]) -> None:
    _check_words(field, items)
    if not items:
        raise YardError(f"{field}: it has no values", code="BadOption")
    for item in items:
        if "," in str(item):
            raise YardError(f"{field}: {item!r} has a comma, which separates values", code="BadOption")


def _check_key(field: str, key: str) -> None:
    _check_type(field, key, ("string",))
    if not key or "=" in key:
        raise YardError(f"{field}: {key!r} is not a name", hint='a name has no "="', code="BadOption")


def _option(option: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [option] if value else []
    if isinstance(value, list):
        return [f"{option}={item}" for item in value]
    if isinstance(value, dict):
        return [
            f"{option}={key}={','.join(map(str, item)) if isinstance(item, list) else item}"
            for key, item in value.items()
        ]
    return [f"{option}={value}"]


def positional(arguments: Arguments, name: str) -> list[str]:
    """The words of an argument that is no option: one or, of an array, several; none if it is missing."""
    value = arguments.get(name)
    words = [] if value is None else value if isinstance(value, list) else [value]
    for word in words:
        if not isinstance(word, str) or not _POSITIONAL.fullmatch(word):
            raise YardError(f"{name}: {word!r} is not a name", code="BadOption")
    return [str(word) for word in words]
