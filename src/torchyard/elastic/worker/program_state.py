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
from contextlib import suppress
from functools import _lru_cache_wrapper, partial
from pathlib import Path
from typing import Any

import torch

from torchyard.elastic.worker.plain_values import PLAIN, array_value, generator_state, tensor_value
from torchyard.elastic.worker.standard_objects import environment, values_kept

MOST_ITEMS = 100
"""How many entries of a list or a dict are looked at; its length is compared in any case."""
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
_OWN_FIELDS = frozenset({"_parameters", "_buffers", "_modules"})
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_CONTAINERS = (dict, list, tuple, deque, set, frozenset)
_BOUND = (types.BuiltinMethodType, types.MethodWrapperType)
_CALLABLES = (partial, types.FunctionType, types.MethodType, _lru_cache_wrapper, *_BOUND)
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
        walk = Walk(self._inside, values=values)
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


class Walk:
    """One pass over the variables.

    Args:
        inside: the ids of objects that are not looked at.
        values: compare tensors by their values; otherwise by what torch counts when one is changed.
        packages: look at the attributes of objects of installed packages too, but not of torch and NumPy.
    """

    def __init__(self, inside: set[int], *, values: bool, packages: bool = False) -> None:
        self._packages = packages
        self.seen: Values = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.objects: dict[str, Any] = {}
        self.visited = set(inside)
        self._values = values

    def visit(self, name: str, value: Any, depth: int) -> None:
        while name in self.seen:  # two functions may use the same name
            name += "'"
        if isinstance(value, PLAIN):
            self.seen[name] = value
        elif isinstance(value, torch.Tensor):
            if id(value) not in self.visited:
                self.seen[name] = tensor_value(value, values=self._values)
                if value.is_floating_point() and not torch.nn.parameter.is_lazy(value):
                    self.shapes[name] = tuple(value.shape)
        elif id(value) not in self.visited and depth < DEEPEST and len(self.seen) < MOST_VARIABLES:
            self.visited.add(id(value))
            for part, inner in self._parts(name, value):
                self.visit(part, inner, depth + 1)

    def _parts(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, _CALLABLES):
            yield from self._callable(name, value)
        elif isinstance(value, torch.nn.Module):
            yield from self._module(name, value)
        elif isinstance(value, _CONTAINERS):
            yield f"len({name})", len(value)
            yield from _items(name, value)
        elif isinstance(value, type):
            if is_of_program(value):
                yield from self._class(name, value)
        elif (state := generator_state(value)) is not None:
            yield f"{name}.{state[0]}", state[1]
        elif (array := array_value(value)) is not None:
            yield f"{name}.shape", repr(array[0])
            yield name, array[1]
        elif isinstance(value, types.GeneratorType) and not is_file_of_program(value.gi_code.co_filename):
            return
        elif (items := values_kept(name, value)) is not None:
            yield from items
        else:
            yield from self._any_object(name, value)

    def _any_object(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if is_of_program(type(value)) or isinstance(value, torch.utils.data.Dataset):
            yield from self._object(name, value)
        elif self._packages and is_of_package(type(value)):
            with suppress(TypeError, ReferenceError, RuntimeError):  # a proxy, whose object may be gone
                for key, item in list(vars(value).items()):
                    yield f"{name}.{key}", item

    def _callable(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, partial):
            yield from self._function(value.func)
            yield f"{name}.args", value.args
            yield f"{name}.keywords", value.keywords
        elif isinstance(value, _lru_cache_wrapper):
            yield from self._function(value.__wrapped__)
        elif isinstance(value, _BOUND):
            if not isinstance(value.__self__, types.ModuleType):  # a method of a list, say
                yield name, value.__self__
        else:
            yield from self._function(value)

    def _function(self, function: Any) -> Iterator[tuple[str, Any]]:
        """Yield what the code of a function refers to by name."""
        if isinstance(function, types.MethodType):
            yield "self", function.__self__
            function = function.__func__
        if not isinstance(function, types.FunctionType) or not is_file_of_program(function.__code__.co_filename):
            return
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                yield key, cell.cell_contents
            except ValueError:
                continue  # not assigned yet
        yield from _defaults(function)
        names = set(global_names(function.__code__))
        yield from environment(names)
        for key in sorted(names & set(function.__globals__)):
            value = function.__globals__[key]
            if isinstance(value, types.ModuleType):
                yield from _of_module(value, names)
            else:
                yield key, value
        for key, item in vars(function).items():
            yield f"{function.__name__}.{key}", item

    def _module(self, name: str, module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
        """Yield the attributes of a module and of those in it: whether it trains, a rate of dropout, a counter."""
        own = is_of_program(type(module))
        for key, item in list(vars(module).items()):
            if key not in _OWN_FIELDS and (own or (isinstance(item, PLAIN) and not key.startswith("_"))):
                yield f"{name}.{key}", item
        if own:
            yield type(module).__name__, type(module)
        hooks = [getattr(module, kind, None) for kind in _HOOKS]
        hooks += [getattr(parameter, kind, None) for parameter in module._parameters.values() for kind in _TENSOR_HOOKS]
        for hook in [hook for registered in hooks for hook in list((registered or {}).values())]:
            yield f"a hook of {name}", hook
        for key, child in module.named_children():
            yield f"{name}.{key}", child

    def _object(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        self.objects[name] = value
        for key, item in list(getattr(value, "__dict__", {}).items()):
            yield f"{name}.{key}", item
        for kind in type(value).__mro__:
            if not is_of_program(kind):
                continue
            slots = vars(kind).get("__slots__", ())
            for key in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, key):
                    yield f"{name}.{key}", getattr(value, key)
            yield kind.__name__, kind

    def _class(self, name: str, kind: type) -> Iterator[tuple[str, Any]]:
        """Yield what the methods of a class refer to, and its own variables."""
        for key, item in list(vars(kind).items()):
            function = getattr(item, "__func__", getattr(item, "fget", item))
            if isinstance(function, types.FunctionType):
                yield from self._function(function)
            elif not key.startswith("__"):
                yield f"{name}.{key}", item
        for base in kind.__bases__:
            yield base.__name__, base


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the default values of a function's arguments: a list there lives as long as the function."""
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    for key, item in (*zip(names, defaults, strict=True), *(function.__kwdefaults__ or {}).items()):
        yield f"{function.__name__}.{key}", item


def _of_module(module: types.ModuleType, names: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a module of the program that a function may refer to."""
    if is_file_of_program(getattr(module, "__file__", None) or "<frozen"):
        for key in sorted(names & set(vars(module))):
            yield f"{module.__name__}.{key}", vars(module)[key]


def _items(name: str, container: Any) -> Iterator[tuple[str, Any]]:
    """Yield the first items of a dict or a sequence."""
    if isinstance(container, dict):
        keys: list[Any] = [key for key in list(container)[:MOST_ITEMS] if isinstance(key, str | int)]
    else:
        keys = list(range(min(MOST_ITEMS, len(container)))) if isinstance(container, list | tuple | deque) else []
    for key in keys:
        yield f"{name}[{key!r}]", container[key]


def global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from global_names(constant)


def is_of_program(kind: type) -> bool:
    if kind in (argparse.Namespace, types.SimpleNamespace):
        return True
    module = sys.modules.get(kind.__module__)
    if kind.__module__ == "__main__":
        return True
    file = getattr(module, "__file__", None)
    return file is not None and is_file_of_program(file)


def is_of_package(kind: type) -> bool:
    """Return whether a class is of an installed package, but not of Python, torch, NumPy or this one."""
    top = (kind.__module__ or "").partition(".")[0]
    return top not in sys.stdlib_module_names and top not in ("torch", "numpy", "torchyard")


def is_file_of_program(file: str) -> bool:
    path = str(Path(file).absolute())
    return not file.startswith("<frozen") and not path.startswith(_INSTALLED) and "-packages/" not in path


def reaches(root: Any, modules: Iterable[torch.nn.Module]) -> bool:
    """Return whether an object or its methods refer to one of the modules."""
    walk = Walk(set(), values=False)
    walk.visit("", root, 0)
    return any(id(module) in walk.visited for module in modules)
