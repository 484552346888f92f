"""Checks a training before its first step: what would give a wrong or irreproducible model is refused here.

The check loads and computes one micro-batch twice and discards the results. It finds the buffers that a forward pass
changes, and a dataset or a loss function that depends on something outside of the state. It also creates threads,
kernels, compiled code and the parameters of lazy modules, before other workers wait for this one.
"""

from __future__ import annotations

import gc
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.reduce.buffers import BufferWatch, MutableBuffers, mutable_buffers
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.worker.data_check import DataCheck, ProgramRaised, check_same, check_variables
from torchyard.elastic.worker.data_source import DataSource
from torchyard.elastic.worker.program_state import ProgramState, reaches
from torchyard.elastic.worker.seeding import generators_digest, seed_generators
from torchyard.elastic.world.state import raw_bytes


def check_model(model: torch.nn.Module) -> None:
    """Refuse models that this runtime cannot train."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise ElasticError(
            "WrappedModel",
            "the model is wrapped in DistributedDataParallel, which would average gradients a second time",
            hint="pass the model itself; remove the wrapper, the sampler and init_process_group",
        )
    for name, parameter in model.named_parameters():
        kind = type(parameter.data).__name__ if _is_lazy(parameter) else type(parameter).__name__
        sharded = "DTensor" in {kind, type(getattr(parameter, "data", None)).__name__}
        if sharded or type(model).__name__ == "FullyShardedDataParallel":
            raise ElasticError(
                "ShardedModel",
                f"the model is sharded ({name} is a part of a parameter), but every worker needs the whole model",
                hint="remove fully_shard or FullyShardedDataParallel; this runtime is data-parallel only",
            )


def check_optimizers(model: torch.nn.Module, optimizers: Mapping[str, Any]) -> None:
    """Refuse optimizers of parameters that are not the model's: their gradients would not be averaged."""
    own = {id(parameter) for parameter in model.parameters()}
    for name, optimizer in optimizers.items():
        groups = getattr(optimizer, "param_groups", None)
        if groups is None:
            raise ElasticError(
                "NoOptimizer",
                f"{name} is a {type(optimizer).__name__}, not a torch optimizer",
                hint="pass a torch.optim.Optimizer, or a list or a dict of them",
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ElasticError(
                "NeedsClosure",
                f"{name} is LBFGS, which computes the loss several times in a step",
                hint="use an optimizer that computes a step from one gradient, for example AdamW",
            )
        for index, group in enumerate(groups):
            for parameter in group["params"]:
                if id(parameter) not in own:
                    shape = "not known yet" if _is_lazy(parameter) else str(tuple(parameter.shape))
                    raise ElasticError(
                        "ForeignParameter",
                        f"group {index} of the {name} has a parameter (shape {shape}) that the model does not have: "
                        "its gradient would not be averaged",
                        hint="make it a part of the model, for example torch.nn.ModuleList([net, head])",
                    )


def check_schedulers(optimizers: Iterable[Any], parts: Iterable[Any]) -> None:
    """Refuse a scheduler that is not part of the state: a new worker would not know its position."""
    own = [inner for optimizer in optimizers for inner in (optimizer, getattr(optimizer, "optimizer", None)) if inner]
    if not any(hasattr(getattr(optimizer, "step", None), "_wrapped_by_lr_sched") for optimizer in own):
        return
    known = {id(scheduler) for part in parts for scheduler in _with_inner(part)}
    for scheduler in [item for item in gc.get_objects() if issubclass(type(item), LRScheduler)]:
        if any(scheduler.optimizer is optimizer for optimizer in own) and id(scheduler) not in known:
            raise ElasticError(
                "UnknownScheduler",
                f"a {type(scheduler).__name__} changes the learning rate, but is not part of the state: a worker that "
                "joins later, or a resumed job, would continue with another learning rate",
                hint="pass it as scheduler= (it advances after every step), or in also= and advance it in the loop's "
                "body on every worker",
            )


def check_dataset(source: DataSource, model: torch.nn.Module) -> None:
    """Refuse loading processes for records that the model computes: they have its first parameters for ever."""
    if source.loaders and reaches(source.dataset, model.modules()):
        raise ElasticError(
            "ModelInLoaders",
            f"the dataset {type(source.dataset).__name__} uses the model, but its records are loaded in processes, "
            "which do not see the model's later parameters",
            hint="pass loaders=0: the records are then loaded in the training thread, with the present parameters",
        )


def _with_inner(part: Any) -> Iterator[Any]:
    """Yield a scheduler and those within it: of a sequence, or that Accelerate has wrapped."""
    yield part
    for inner in (*getattr(part, "_schedulers", ()), getattr(part, "scheduler", None)):
        if inner is not None:
            yield from _with_inner(inner)


def _is_lazy(parameter: Any) -> bool:
    return torch.nn.parameter.is_lazy(parameter)


def _check_drawn(drawn: Any) -> None:
    if generators_digest() != drawn:
        raise ElasticError(
            "NotReproducible",
            "the loss function drew other random numbers when it computed the same records again: it keeps what it "
            "drew the first time, for example noise in a functools.cache, which a new worker does not have",
            hint="draw random numbers anew for every micro-batch, or draw what stays before train is called",
        )


class DryRun:
    """Loads and computes the first micro-batch twice, and discards the results.

    Args:
        model: the model.
        sampler: which records a micro-batch has.
        data: loads the first micro-batch.
        loss: the program's loss function.
        strict: whether the same bits are required.
        program: the variables that the loss function and the dataset use; None if they are not compared.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        sampler: StepSampler,
        data: DataCheck,
        *,
        loss: Callable[[Any], torch.Tensor],
        strict: bool,
        program: ProgramState | None = None,
    ) -> None:
        self._program = program
        self._model = model
        self._sampler = sampler
        self._data = data
        self._loss = loss
        self._strict = strict

    def run(self) -> MutableBuffers:
        """Return the buffers that a forward pass changes."""
        watch = BufferWatch(self._model)
        changed: set[str] = set()
        self._clear_gradients()
        with suppress(ProgramRaised):  # the first step raises it again, and reports it with its records
            batch = self._data.run()
            versions = self._versions()
            if any(_is_lazy(parameter) for parameter in self._model.parameters()):
                self._compute(batch)  # draws the first parameters
                watch.restore()
                self._clear_gradients()
            first = self._compute(batch)
            drawn = generators_digest()
            self._check_dense()
            gradients = self._gradients()
            changed = watch.changed()
            self._check_parameters(versions)
            watch.restore()
            self._clear_gradients()
            before = self._program.read(values=True) if self._program is not None else {}
            again = self._compute(self._data.load())
            check_same("the loss function", first, again, strict=self._strict)
            _check_drawn(drawn)
            if self._program is not None:
                check_variables(self._program, before)
            self._check_gradients(gradients)
        watch.restore()
        self._clear_gradients()
        self._check_materialized()
        return mutable_buffers(self._model, changed)

    def _clear_gradients(self) -> None:
        for parameter in self._model.parameters():
            parameter.grad = None

    def _gradients(self) -> dict[str, int]:
        """Return a checksum of every gradient."""
        if not self._strict:
            return {}
        named = self._model.named_parameters()
        return {name: zlib.crc32(raw_bytes(p.grad.detach())) for name, p in named if p.grad is not None}

    def _check_gradients(self, first: dict[str, int]) -> None:
        again = self._gradients()
        name = next((name for name in first if first[name] != again.get(name)), None)
        if name is not None:
            raise ElasticError(
                "NotReproducible",
                f"the gradient of {name} had two values for the same records, seeds and parameters, although the loss "
                "was the same: a hook or a backward pass depends on something that is not part of the state",
                hint="compute what depends on progress from the state, for example from a buffer of the model",
            )

    def _check_dense(self) -> None:
        for name, parameter in self._model.named_parameters():
            if parameter.grad is not None and parameter.grad.layout is not torch.strided:
                raise ElasticError(
                    "SparseGradient",
                    f"the gradient of {name} is sparse, but gradients are averaged as dense tensors",
                    hint="create the embedding with sparse=False, and use an optimizer for dense gradients",
                )

    def _compute(self, batch: Any) -> Any:
        device = next((p.device for p in self._model.parameters() if not _is_lazy(p)), torch.device("cpu"))
        seed_generators(self._sampler.rng_seed(1, 0), device)
        try:
            loss = self._loss(batch)
            torch.autograd.backward(loss)
            return loss.detach()
        except Exception as error:
            raise ProgramRaised from error

    def _versions(self) -> dict[str, int]:
        return {name: p._version for name, p in self._model.named_parameters() if not _is_lazy(p)}

    def _check_parameters(self, versions: dict[str, int]) -> None:
        for name, parameter in self._model.named_parameters():
            if name in versions and parameter._version != versions[name]:
                raise ElasticError(
                    "ForwardChangesParameter",
                    f"the forward pass changes the parameter {name}",
                    hint="initialize parameters before train is called; change them only through the optimizer",
                )

    def _check_materialized(self) -> None:
        lazy = [name for name, parameter in self._model.named_parameters() if _is_lazy(parameter)]
        if lazy:
            raise ElasticError(
                "LazyModel",
                f"the parameter {lazy[0]} of a lazy module has no shape, and the first micro-batch gave it none",
                hint="compute one batch with the model before train is called",
            )
