"""The variables of a program's loop that would differ between workers: what its body keeps from one step to the next.

A worker that joins later begins its loop with fresh variables. Most of them are logs. What decides a model is refused:
a copy of its parameters (a moving average, the best model so far), an object that counts for the model or the
optimizer, and in a loop of the program's own a hidden state. A variable that the body assigns before it reads it keeps
nothing.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.program_state import Values, Walk, global_names, is_file_of_program, is_of_program
from torchyard.elastic.worker.settings import TrainingSettings


class LoopBody:
    """Compares what a loop keeps before and after its body.

    Args:
        model: the model.
        optimizers: its optimizers.
        parts: all objects of the state, by name.
        settings: the settings of the training. Without a loss function, the body computes the gradients.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Iterable[Any],
        parts: Mapping[str, Any],
        settings: TrainingSettings,
    ) -> None:
        self._used = (model, *optimizers)
        self._parts = dict(parts)
        self._shapes = {tuple(p.shape) for p in model.parameters() if p.requires_grad and p.numel() > 1}
        self._unchecked = frozenset(settings.unchecked)
        self._own_loop = settings.loss is None
        self._before: _Seen | None = None
        self._counts: Values = {}

    def before(self) -> None:
        """Remember the variables of the loop. The program's loop must be the caller's caller."""
        frame = _program_frame()
        self._before = self._read(frame) if frame is not None else None

    def check(self) -> None:
        """Raise if the body has changed what it must not keep, since the last call of `before`."""
        before, self._before = self._before, None
        frame = _program_frame()
        if before is None or frame is None:
            return
        after = self._read(frame)
        loop = _Loop(frame)
        for name, value in after.values.items():
            root = after.roots[name]
            changed = before.values.get(name) != value
            if not changed or not loop.keeps(root) or root in self._unchecked or name in self._unchecked:
                continue
            shape = after.shapes.get(name)
            if shape in self._shapes:
                raise _kept(name, "has the shape of a parameter", "a moving average, the best model so far")
            hidden = shape is not None and len(shape) > 1 and before.shapes.get(name) == shape
            if self._own_loop and hidden and loop.reads_first(root):
                raise _hidden(name)
            if isinstance(value, int | float) and after.counts(name, self._used):
                raise _kept(name, "belongs to an object that uses the model or its optimizer", "a schedule")
        self._check_parts()

    def _check_parts(self) -> None:
        """Raise if an object of the state counts something that its state_dict does not contain."""
        earlier, self._counts = self._counts, {}
        for name, part in self._parts.items():
            if not is_of_program(type(part)) or isinstance(part, torch.nn.Module):
                continue
            known = set(_numbers(part.state_dict()))
            for key, value in getattr(part, "__dict__", {}).items():
                if type(value) not in (int, float):
                    continue
                path = f"{name}.{key}"
                self._counts[path] = value
                if path in earlier and earlier[path] != value and value not in known and path not in self._unchecked:
                    raise ElasticError(
                        "StateOutside",
                        f"{path} changes while training, but the state_dict of {name} does not contain it: a worker "
                        "that joins later, or a resumed job, would continue with another value",
                        hint=f"return it from state_dict, and set it in load_state_dict; if it has no influence, pass "
                        f"unchecked=[{path!r}]",
                    )

    def _read(self, frame: types.FrameType) -> _Seen:
        inside = [item for part in self._parts.values() for item in (part, *getattr(part, "__dict__", {}).values())]
        inside += [tensor for part in self._used[:1] for tensor in (*part.parameters(), *part.buffers())]
        walk = Walk({id(item) for item in inside}, values=False)
        seen = _Seen(walk.seen, walk.shapes, walk.objects)
        for name, value in _variables(frame):
            walk.visit(name, value, 0)
            seen.roots |= dict.fromkeys(islice(walk.seen, len(seen.roots), None), name)
        return seen


class _Seen:
    """The variables of a loop: their values, shapes and objects, and the variable of the loop that leads to each."""

    def __init__(self, values: Values, shapes: dict[str, tuple[int, ...]], objects: dict[str, Any]) -> None:
        self.values = values
        self.roots: dict[str, str] = {}
        self.shapes = shapes
        self.objects = objects

    def counts(self, name: str, used: tuple[Any, ...]) -> bool:
        """Return whether a number is an attribute of an object that refers to one of these."""
        owner = name.rpartition(".")[0]
        if owner == "self" or owner not in self.objects or isinstance(self.values[name], bool):
            return False
        attributes = getattr(self.objects[owner], "__dict__", {}).values()
        return any(item is other for item in attributes for other in used)


class _Loop:
    """The instructions of a `for` loop that a frame is in."""

    def __init__(self, frame: types.FrameType) -> None:
        self._code = frame.f_code
        self._shared = set(frame.f_code.co_cellvars)
        if frame.f_code.co_name == "<module>":
            functions = [item for item in frame.f_globals.values() if isinstance(item, types.FunctionType)]
            self._shared |= {name for function in functions for name in global_names(function.__code__)}
        self._begin, self._end = 0, 0
        for instruction in dis.get_instructions(self._code):
            if instruction.offset == frame.f_lasti and instruction.opname.startswith("FOR_ITER"):
                self._begin, self._end = instruction.offset, int(instruction.argval)

    def keeps(self, name: str) -> bool:
        """Return whether a variable has a value at the end of the body that is read later."""
        if not self._end or name in self._shared:
            return True
        if not any(access == "STORE" for _, access in self._accesses(name, self._begin, self._end)):
            return True
        return self.reads_first(name) or any(True for _ in self._accesses(name, self._end, sys.maxsize))

    def reads_first(self, name: str) -> bool:
        """Return whether the body reads a variable before it assigns it."""
        first = next(self._accesses(name, self._begin, self._end), None)
        return first is not None and first[1] == "LOAD"

    def _accesses(self, name: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
        """Yield where and how the code between two positions uses a variable."""
        for instruction in dis.get_instructions(self._code):
            if not begin <= instruction.offset < end or not instruction.opname.startswith(("LOAD_", "STORE_")):
                continue
            names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            kinds = [part for part in instruction.opname.split("_") if part in ("LOAD", "STORE")]
            for position, used in enumerate(names):
                if used == name and not instruction.opname.endswith(("_ATTR", "_METHOD", "_CONST")):
                    yield instruction.offset, kinds[min(position, len(kinds) - 1)]


def _program_frame() -> types.FrameType | None:
    """Return the frame of the program that iterates over the steps."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not is_file_of_program(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _variables(frame: types.FrameType) -> Iterator[tuple[str, Any]]:
    """Yield the variables that the code of a frame uses."""
    names = {*frame.f_code.co_varnames, *frame.f_code.co_cellvars, *frame.f_code.co_freevars}
    names |= set(global_names(frame.f_code))
    local = frame.f_locals
    for name in sorted(names):
        if name in local:
            yield name, local[name]
        elif name in frame.f_globals and not isinstance(frame.f_globals[name], types.ModuleType):
            yield name, frame.f_globals[name]


def _numbers(value: Any) -> Iterator[int | float]:
    """Yield all numbers in a state_dict."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _numbers(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, torch.Tensor):
        if value.numel() == 1 and not value.is_complex():
            yield value.item()
    elif isinstance(value, int | float):
        yield value


def _kept(name: str, why: str, example: str) -> ElasticError:
    return ElasticError(
        "StateOutside",
        f"the body of the loop changes {name}, which {why} and is not part of the state ({example}): a worker that "
        "joins later, or a resumed job, would continue with another value",
        hint="keep it in an object with a state_dict that you pass in also=, for example "
        f"torch.optim.swa_utils.AveragedModel; if it does not influence the result, pass unchecked=[{name!r}]",
    )


def _hidden(name: str) -> ElasticError:
    return ElasticError(
        "StateOutside",
        f"the loop carries {name} from one batch to the next: the batches of a worker depend on the number of workers, "
        "so the model would, too",
        hint="begin every batch with a fresh value, and give records the length that one computation needs; if it "
        f"does not influence the gradients, pass unchecked=[{name!r}]",
    )
