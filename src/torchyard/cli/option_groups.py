"""Groups of options that several commands share: a command has one parameter for a whole group."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def with_groups(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of each group, which is a function of them, in place of the parameter of its name.

    The options of groups come last, in the order of the groups.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter
            for name, parameter in inspect.signature(command, eval_str=True).parameters.items()
            if name not in groups
        ]
        members = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}

        def run(**arguments: Any) -> None:
            values = {
                name: group(**{option: arguments.pop(option) for option in members[name]})
                for name, group in groups.items()
            }
            command(**values, **arguments)

        options = [option for parameters in members.values() for option in parameters.values()]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *options)]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
