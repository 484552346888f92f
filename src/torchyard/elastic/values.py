"""Plain values of a program that belong to the state of its training, for example the patience of an early stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.elastic.errors import ElasticError

_PLAIN = (bool, int, float, str, type(None))


class Values:
    """Attributes that a worker which joins later receives with the state, and that checkpoints contain.

    `kept = Values(best=float("inf"), bad=0)` is passed as `also={"kept": kept}`; the loop then uses `kept.best`.

    Args:
        values: the first values: numbers, strings, None, or lists of them.
    """

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name):
            raise ElasticError("BadValues", f"{name} is a method of Values", hint="choose another name for the value")
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, _PLAIN) for item in items):
            raise ElasticError(
                "BadValues",
                f"{name} is a {type(value).__name__}",
                hint="use numbers, strings, None or lists of them, for example loss.item() of a tensor; pass objects "
                "with a state_dict in also=",
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:  # only for the names that were not given: the rest are attributes
        raise AttributeError(f"Values has no {name!r}; it has {', '.join(vars(self)) or 'none'}")

    def __repr__(self) -> str:
        return f"Values({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def state_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, list) else value for name, value in vars(self).items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        vars(self).clear()
        vars(self).update({name: list(v) if isinstance(v, list) else v for name, v in state_dict.items()})
