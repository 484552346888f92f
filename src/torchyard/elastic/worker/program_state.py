"""The plain Python state that a loss function and a dataset use: closures, globals, attributes.

It is not part of the training's state, so a worker that joins later does not have it. What changes there is compared:
by a computation in the start-up check, and by the body of the loop while training. Only the code and the classes of
the program itself are looked at, not those of installed packages.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

MOST_ITEMS = 100
"""How many entries of a list or a dict are looked at; its length is compared in any case."""
MOST_ELEMENTS = 16384
"""The values of larger tensors are not compared."""
MOST_VARIABLES = 20_000
DEEPEST = 6
_INSTALLED = tuple(
    str(Path(path).resolve())
    for path in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(torch.__file__).parent),
        str(Path(__file__).parent.parent.parent),
    }
)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_OWN_FIELDS = frozenset({"_parameters", "_buffers", "_modules"})
Values = dict[str, Any]
"""What was seen, by the names of the variables."""


class ProgramState:
    """The variables of a program that decide what a training computes.

    Args:
        roots: the loss function, the model and the dataset, by the name that messages use.
        inside: objects that belong to the state, and are not looked at.
        unchecked: names of variables that may change.
    """

    def __init__(self, roots: Mapping[str, Any], *, inside: Iterable[Any] = (), unchecked: Iterable[str] = ()) -> None:
        self._roots = dict(roots)
        self._inside = {id(item) for item in inside}
        self._unchecked = frozenset(unchecked)

    def read(self, *, values: bool) -> Values:
        """Return all variables.

        Args:
            values: compare tensors by their values; otherwise by what torch counts when one is changed, which is fast.
        """
        walk = _Walk(self._inside, values=values)
        for name, root in self._roots.items():
            walk.visit(name, root, 0)
        return walk.seen

    def first_change(self, before: Values, after: Values) -> str | None:
        """Return the first variable that differs and is not unchecked."""
        for name, value in after.items():
            if name in before and _differs(before[name], value) and not self._is_unchecked(name):
                return name
        return None

    def _is_unchecked(self, name: str) -> bool:
        return any(name == free or name.startswith((f"{free}.", f"{free}[")) for free in self._unchecked)


def _differs(before: Any, after: Any) -> bool:
    same = type(before) is type(after) and before == after
    return not same and not (before != before and after != after)  # noqa: PLR0124  # NaN


class _Walk:
    """One pass over the variables."""

    def __init__(self, inside: set[int], *, values: bool) -> None:
        self.seen: Values = {}
        self.visited = set(inside)
        self._values = values

    def visit(self, name: str, value: Any, depth: int) -> None:
        while name in self.seen:  # two functions may use the same name
            name += "'"
        if isinstance(value, _PLAIN):
            self.seen[name] = value
        elif isinstance(value, torch.Tensor):
            if id(value) not in self.visited:
                self.seen[name] = self._tensor(value)
        elif id(value) not in self.visited and depth < DEEPEST and len(self.seen) < MOST_VARIABLES:
            self.visited.add(id(value))
            for part, inner in self._parts(name, value):
                self.visit(part, inner, depth + 1)

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if torch.nn.parameter.is_lazy(tensor) or tensor.is_inference():
            return None
        if not self._values:
            return id(tensor), tensor._version
        small = tensor.numel() <= MOST_ELEMENTS and tensor.layout is torch.strided
        return (tuple(tensor.shape), tensor.detach().cpu().tolist() if small else None)

    def _parts(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, partial | types.FunctionType | types.MethodType):
            yield from self._callable(name, value)
        elif isinstance(value, torch.nn.Module):
            yield from self._module(name, value)
        elif isinstance(value, dict | list | tuple | deque | set | frozenset):
            yield f"len({name})", len(value)
            yield from _items(name, value)
        elif isinstance(value, torch.Generator):
            yield f"{name}.get_state()", bytes(value.get_state().tolist())
        elif _is_of_program(type(value)):
            yield from self._object(name, value)

    def _callable(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, partial):
            yield from self._function(value.func)
            yield f"{name}.args", value.args
            yield f"{name}.keywords", value.keywords
        else:
            yield from self._function(value)

    def _function(self, function: Any) -> Iterator[tuple[str, Any]]:
        """Yield what the code of a function refers to by name."""
        if isinstance(function, types.MethodType):
            yield "self", function.__self__
            function = function.__func__
        if not isinstance(function, types.FunctionType) or not _is_file_of_program(function.__code__.co_filename):
            return
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                yield key, cell.cell_contents
            except ValueError:
                continue  # not assigned yet
        for key in _global_names(function.__code__):
            if key in function.__globals__:
                yield key, function.__globals__[key]
        for key, item in vars(function).items():
            yield f"{function.__name__}.{key}", item

    def _module(self, name: str, module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
        """Yield the attributes of a module and of those in it: whether it trains, a rate of dropout, a counter."""
        own = _is_of_program(type(module))
        for key, item in list(vars(module).items()):
            if key not in _OWN_FIELDS and (own or (isinstance(item, _PLAIN) and not key.startswith("_"))):
                yield f"{name}.{key}", item
        for key, child in module.named_children():
            yield f"{name}.{key}", child

    def _object(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        for key, item in list(getattr(value, "__dict__", {}).items()):
            yield f"{name}.{key}", item
        for kind in type(value).__mro__:
            if _is_of_program(kind):
                for key, item in list(vars(kind).items()):
                    if isinstance(item, types.FunctionType):
                        yield from self._function(item)
                    elif isinstance(item, _PLAIN) and not key.startswith("__") and key not in vars(value):
                        yield f"{name}.{key}", item


def _items(name: str, container: Any) -> Iterator[tuple[str, Any]]:
    """Yield the first items of a dict or a sequence."""
    if isinstance(container, dict):
        keys: list[Any] = [key for key in list(container)[:MOST_ITEMS] if isinstance(key, str | int)]
    else:
        keys = list(range(min(MOST_ITEMS, len(container)))) if isinstance(container, list | tuple | deque) else []
    for key in keys:
        yield f"{name}[{key!r}]", container[key]


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _is_of_program(kind: type) -> bool:
    if kind in (argparse.Namespace, types.SimpleNamespace):
        return True
    module = sys.modules.get(kind.__module__)
    if kind.__module__ == "__main__":
        return True
    file = getattr(module, "__file__", None)
    return file is not None and _is_file_of_program(file)


def _is_file_of_program(file: str) -> bool:
    path = str(Path(file).absolute())
    return not file.startswith("<frozen") and not path.startswith(_INSTALLED) and "-packages/" not in path


def reaches(root: Any, modules: Iterable[torch.nn.Module]) -> bool:
    """Return whether an object or its methods refer to one of the modules."""
    walk = _Walk(set(), values=False)
    walk.visit("", root, 0)
    return any(id(module) in walk.visited for module in modules)
