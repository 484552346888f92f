"""The variables of a program's loop that would differ between workers: what its body keeps from one step to the next.

A worker that joins later begins its loop with fresh variables. Most of them are logs. What decides a model is refused:
a copy of its parameters (a moving average, the best model so far), an object that counts for the model or the
optimizer, in a loop of the program's own a hidden state, and all on which the end of the loop, the state or a saved
model depends, for example the patience of an early stop. A variable that the body assigns before it reads it keeps
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
from torchyard.elastic.worker.loop_source import LoopSource, attribute, function_source
from torchyard.elastic.worker.program_source import find_loops, name_of_self
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
        self._before: dict[types.CodeType, _Seen] = {}
        self._counts: Values = {}
        self._state = {id(item) for item in (*self._parts.values(), *self._used, *model.modules())}
        self._frame: types.FrameType | None = None
        self._sources: dict[tuple[types.CodeType, int], tuple[LoopSource, LoopSource] | None] = {}
        self._decisions: dict[tuple[int, str], str | None] = {}

    def before(self) -> None:
        """Remember the variables of the program's loop that the caller serves."""
        frame = _program_frame()
        if frame is not None:
            self._before[frame.f_code] = self._read(frame)

    def check(self) -> None:
        """Raise if the body has changed what it must not keep, since the last call of `before` for the same loop."""
        frame = _program_frame()
        before = self._before.pop(frame.f_code, None) if frame is not None else None
        if before is None or frame is None:
            return
        after = self._read(frame)
        loop = _Loop(frame)
        self._frame = frame
        for name, value in after.values.items():
            root = after.roots[name]
            if before.values.get(name) == value or self._unchecked & {name.rstrip("'"), root}:
                continue
            if loop.keeps(root):
                self._check_kept(name, loop, before, after)
            self._check_decision(name, root, frame)
        self._frame = None
        self._check_parts()

    def _check_kept(self, name: str, loop: _Loop, before: _Seen, after: _Seen) -> None:
        shape, value = after.shapes.get(name), after.values[name]
        if shape in self._shapes:
            raise _kept(name, "has the shape of a parameter", "a moving average, the best model so far")
        hidden = shape is not None and len(shape) > 1 and before.shapes.get(name) == shape
        if self._own_loop and hidden and loop.reads_first(after.roots[name]):
            raise _hidden(name)
        if isinstance(value, int | float) and after.counts(name, self._used):
            raise _kept(name, "belongs to an object that uses the model or its optimizer", "a schedule")

    def _check_decision(self, name: str, root: str, frame: types.FrameType) -> None:
        """Raise if the end of the loop, the state or a saved model depends on a variable that the loop carries."""
        sources = self._sources_of(frame)
        if sources is None or id(self._variable(root)) in self._state:
            return
        inner, outer = sources
        key = outer.key(name if name.removeprefix("len(").startswith(f"{root}.") else root)
        if self._unchecked & {key} or not outer.reads(key):
            return
        own_batches = self._own_loop and inner is not outer and (inner.carries(key) or inner.assigns(key))
        if not own_batches and not outer.carries(key):
            return
        if (id(outer), key) not in self._decisions:
            self._decisions[id(outer), key] = outer.decision(key)
        decided = self._decisions[id(outer), key]
        if decided is not None and not self._is_private(name, root):
            raise _deciding(name.rstrip("'"), key, decided, of_a_worker=own_batches)

    def _is_private(self, name: str, root: str) -> bool:
        """Return whether a variable of a function that the loop calls influences neither its result nor the state."""
        function = self._variable(root)
        source = function_source(function, self._is_state) if isinstance(function, types.FunctionType) else None
        inner = source.key(name) if source is not None else ""
        return source is not None and source.reads(inner) and source.decision(inner) is None

    def _sources_of(self, frame: types.FrameType) -> tuple[LoopSource, LoopSource] | None:
        """Return the source of a loop, and that of the loop over epochs around it, or the same again."""
        place = (frame.f_code, frame.f_lineno)
        if place not in self._sources:
            loops, own = find_loops(frame), name_of_self(frame)
            sources = {
                id(loop): LoopSource(loop, state=self._is_state, objects=self._variable, self_name=own)
                for loop in loops or ()
            }
            self._sources[place] = (sources[id(loops[0])], sources[id(loops[1])]) if loops else None
        return self._sources[place]

    def _variable(self, name: str) -> Any:
        frame = self._frame
        return frame.f_locals.get(name, frame.f_globals.get(name)) if frame is not None else None

    def _is_state(self, value: Any) -> bool:
        optimizer = attribute(value, "optimizer")  # of a scheduler
        return id(value) in self._state or (optimizer is not None and id(optimizer) in self._state)

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
        walk = Walk({id(item) for item in inside}, values=False, packages=True)
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


def _deciding(name: str, key: str, decided: str, *, of_a_worker: bool) -> ElasticError:
    if of_a_worker:
        return ElasticError(
            "StateOutside",
            f"{key} depends on the batches of this worker, but it decides {decided}: workers have different batches, "
            "so the result would depend on their number",
            hint="decide it from what all workers share, for example job.applied.loss or an evaluation; if it has no "
            f"influence, pass unchecked=[{key!r}]",
        )
    return ElasticError(
        "StateOutside",
        f"the loop carries {name} from one step to the next, and it decides {decided}: a worker that joins later, or a "
        "resumed job, begins with a fresh one and would decide otherwise",
        hint="keep it in the state, for example kept = elastic.Values(best=0.0, bad=0) with also={'kept': kept}; if it "
        f"has no influence, pass unchecked=[{key!r}]",
    )


def _hidden(name: str) -> ElasticError:
    return ElasticError(
        "StateOutside",
        f"the loop carries {name} from one batch to the next: the batches of a worker depend on the number of workers, "
        "so the model would, too",
        hint="begin every batch with a fresh value, and give records the length that one computation needs; if it "
        f"does not influence the gradients, pass unchecked=[{name!r}]",
    )
