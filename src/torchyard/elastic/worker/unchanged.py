"""Checks while training that the program does not change what a training fixes at its start.

A worker that receives a step does not run the loop's body for it. So what the body changes outside of the state is lost
on that worker, and what it changes in the set of trained parameters would differ between workers.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.loop_body import LoopBody
from torchyard.elastic.worker.program_state import ProgramState, Values
from torchyard.elastic.world.comparison import likely_cause
from torchyard.elastic.world.state import TrainingState

CHECKED_STEPS = frozenset({1, 2, 3, 50, 500})
"""After how many steps of this process modules outside of the state are looked at."""

MOST_TIME = 0.003
"""The variables of the program are compared as often as this part of the time allows."""


class UnchangedProgram:
    """What the program must not change.

    Args:
        model: the model.
        optimizers: its optimizers.
        parts: all objects of the state, by name.
        variables: the variables that the loss function and the dataset use; None if they are not compared.
        body: what the program's loop keeps; None if it is not compared.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Iterable[Any],
        parts: Mapping[str, Any],
        variables: ProgramState | None = None,
        body: LoopBody | None = None,
    ) -> None:
        self._variables = variables
        self._body = body
        self._epochs = 0
        self._before_body: Values | None = None
        self._begun, self._spent = time.perf_counter(), 0.0
        self._model = model
        self._optimizers = list(optimizers)
        self._parts = dict(parts)
        self._parameters = list(model.parameters())
        self._requires_grad = [parameter.requires_grad for parameter in self._parameters]
        self._optimized = self._count_optimized()
        self._trained = {id(parameter) for parameter in self._parameters if parameter.requires_grad}
        self._outside = self._find_outside()
        self._steps = 0

    def likely_cause(self, name: str) -> str:
        return likely_cause(name, self._model, self._trained)

    def _count_optimized(self) -> int:
        return sum(len(group["params"]) for optimizer in self._optimizers for group in optimizer.param_groups)

    def check_trainable(self) -> None:
        """Raise if other parameters are trained than at the start. Cheap: it is called for every step."""
        if [parameter.requires_grad for parameter in self._parameters] != self._requires_grad:
            name = next(
                name
                for (name, parameter), earlier in zip(self._model.named_parameters(), self._requires_grad, strict=False)
                if parameter.requires_grad != earlier
            )
            raise ElasticError(
                "TrainableChanged",
                f"requires_grad of {name} changed while training: a worker that joins later would not train the same "
                "parameters",
                hint="set requires_grad before train is called; to unfreeze parameters later, give them a learning "
                "rate of 0 until then",
            )
        if self._count_optimized() != self._optimized:
            raise ElasticError(
                "TrainableChanged",
                "parameters were added to an optimizer while training: a worker that joins later would not have them",
                hint="add all parameter groups before train is called, with a learning rate of 0 until they are needed",
            )

    def _find_outside(self) -> list[tuple[weakref.ref[torch.nn.Module], int]]:
        """Return the modules of this process that are not part of the state, and the version of their tensors."""
        inside = {id(module) for part in self._parts.values() for module in _modules(part)}
        # `type`, because `isinstance` asks a proxy for the class of what it stands for, which may be gone.
        modules = [item for item in gc.get_objects() if issubclass(type(item), torch.nn.Module)]
        return [(weakref.ref(module), _version(module)) for module in modules if id(module) not in inside]

    def before_body(self, *, last_of_epoch: bool = False) -> None:
        """Remember the variables of the program before the body of the loop runs, if the time allows it."""
        begun = time.perf_counter()
        self._epochs += last_of_epoch
        due = self._steps + 1 in CHECKED_STEPS or (last_of_epoch and self._epochs in CHECKED_STEPS)
        if due or self._spent < MOST_TIME * (begun - self._begun):
            if self._variables is not None:
                self._before_body = self._variables.read(values=False)
            if self._body is not None:
                self._body.before()
            self._spent += time.perf_counter() - begun

    def before_epoch(self) -> None:
        """Remember the variables of a program's loop over epochs before its body runs, if the time allows it."""
        begun = time.perf_counter()
        if self._body is not None and (
            self._epochs + 1 in CHECKED_STEPS or self._spent < MOST_TIME * (begun - self._begun)
        ):
            self._body.before()
            self._spent += time.perf_counter() - begun

    def _check_body(self) -> None:
        """Raise if the body of the loop has changed what the loss function uses and what is not part of the state."""
        before, self._before_body = self._before_body, None
        begun = time.perf_counter()
        if before is not None and self._variables is not None:
            name = self._variables.first_change(before, self._variables.read(values=False))
            if name is not None:
                raise ElasticError(
                    "StateOutside",
                    f"the body of the loop changed {name}, which the computation of a step uses and which is not part "
                    "of the state: a worker that joins later, or a resumed job, would compute with another value",
                    hint="keep it in a buffer of the model, or in an object with a state_dict that you pass in also=; "
                    f"after an evaluation, call model.train(); if it has no influence, pass unchecked=[{name!r}]",
                )
        if self._body is not None:
            self._body.check()
        self._spent += time.perf_counter() - begun

    def check(self) -> None:
        """Raise if the body of the loop has changed what it must not."""
        self._check_body()
        self._steps += 1
        if self._steps not in CHECKED_STEPS:
            return
        self._check_parameters()
        for reference, version in self._outside:
            module = reference()
            if module is not None and _version(module) != version and not self._is_state(module):
                raise ElasticError(
                    "StateOutside",
                    f"a {type(module).__name__} that is not part of the state changed while training: a worker that "
                    "joins later, or a resumed job, would continue with another one",
                    hint="pass it to train in also=, for example also={'ema': ema}",
                )

    def _check_parameters(self) -> None:
        """Raise if the model has other parameters than at the start: nothing would average or apply their gradients."""
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        new = [name for key, name in names.items() if key not in {id(parameter) for parameter in self._parameters}]
        if new:
            raise ElasticError(
                "TrainableChanged",
                f"the parameter {new[0]} was replaced while training: the optimizer does not have the new one",
                hint="replace layers between two trainings, see join(trainings=2); copy values into a parameter with "
                "copy_ to keep it",
            )

    def _is_state(self, module: torch.nn.Module) -> bool:
        """Return whether all tensors of a module are part of the state, for example inside of a wrapper."""
        own = {tensor.data_ptr() for tensor in TrainingState(self._parts).capture().tensors}
        return all(tensor.data_ptr() in own for tensor in _tensors(module))


def _modules(part: Any) -> Iterable[torch.nn.Module]:
    if isinstance(part, torch.nn.Module):
        return part.modules()
    inner = [value for value in getattr(part, "__dict__", {}).values() if isinstance(value, torch.nn.Module)]
    return [module for value in inner for module in value.modules()]


def _tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return [tensor for tensor in own if not torch.nn.parameter.is_lazy(tensor)]


def _version(module: torch.nn.Module) -> int:
    return sum(tensor._version for tensor in _tensors(module))
