"""What a tool is: a name, the schema of its arguments, and the command line that they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.api.errors import YardError
from torchyard.api.suggestions import closest

Arguments = Mapping[str, Any]
# Names, paths, MODULE:FUNCTION: never an option.
_POSITIONAL = re.compile(r"[^-\s].*")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a tool. `option` is the option of the command; '' for what the tool's own function places."""

    type: str
    description: str
    option: str = ""
    required: bool = False

    def schema(self) -> dict[str, Any]:
        items = {"items": {"type": "string"}} if self.type == "array" else {}
        values = {"additionalProperties": {"type": "string"}} if self.type == "object" else {}
        return {"type": self.type, "description": self.description, **items, **values}


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
            wrong = not isinstance(value, _TYPES[parameter.type]) or (parameter.type == "integer" and value is True)
            if wrong:
                raise YardError(f"{name}: it must be of type {parameter.type}", code="BadOption")
        for name, parameter in self.parameters.items():
            if parameter.required and name not in arguments:
                raise YardError(f"{self.name} needs the argument {name}", hint=parameter.description, code="BadOption")


def _option(option: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [option] if value else []
    if isinstance(value, list):
        return [f"{option}={item}" for item in value]
    if isinstance(value, dict):
        return [f"{option}={key}={item}" for key, item in value.items()]
    return [f"{option}={value}"]


def positional(arguments: Arguments, name: str) -> list[str]:
    """The words of an argument that is no option: one or, of an array, several; none if it is missing."""
    value = arguments.get(name)
    words = [] if value is None else value if isinstance(value, list) else [value]
    for word in words:
        if not isinstance(word, str) or not _POSITIONAL.fullmatch(word):
            raise YardError(f"{name}: {word!r} is not a name", code="BadOption")
    return [str(word) for word in words]
