"""A program that keeps its own loop: it gets micro-batches, computes gradients, and calls `optimizer.step()`.

for batch in job.batches(model, optimizer, data=loader, micro_batches=4):
    with job.step():
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        scheduler.step()

While the program has a micro-batch, `optimizer.step()` adds its gradients. After the last own one the step is reduced
and applied. In a block of `step`, what follows runs once for every applied step: for all other micro-batches, and when
the world broke, the block ends there. A step that was not applied is simply delivered again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.reduce.buffers import BufferWatch, MutableBuffers
from torchyard.elastic.values import Values
from torchyard.elastic.worker.trainer import Step, Trainer
from torchyard.elastic.world.coordinator_client import WorkerStopped
from torchyard.elastic.world.process_group import GroupBroken


class _BlockEnds(BaseException):
    """Ends a block after `optimizer.step()`: the step is not applied, or not yet."""


class OwnLoop:
    """The loop of a program over micro-batches.

    Args:
        trainer: reduces and applies steps.
        model: the model.
        optimizer: the optimizer whose `step` the program calls.
        buffers: the buffers that a step averages.
        also: further objects of the state, by name.
        device: where the program expects its batches; None leaves them where they were loaded.
    """

    def __init__(
        self,
        trainer: Trainer,
        model: torch.nn.Module,
        optimizer: Any,
        buffers: MutableBuffers,
        *,
        also: Mapping[str, Any],
        device: torch.device | None = None,
    ) -> None:
        if not hasattr(optimizer, "step"):
            raise ElasticError(
                "SeveralOptimizers",
                "a loop of the program's own can have one optimizer only",
                hint="put the parameters of all optimizers into groups of one, or use job.train, which takes several",
            )
        self._trainer = trainer
        self._model = model
        self._parameters = list(model.parameters())
        self._parameter_versions = 0
        self._buffers = buffers
        self._intercepted = _InterceptedStep(optimizer, self._on_step)
        self._also = dict(also)
        self._device = device
        self._watch: BufferWatch | None = BufferWatch(model)
        self._micro: int | None = None
        self._own: list[int] = []
        self._stepped = self._broken = self._rendezvous = self._in_block = False
        self._begun = 0.0
        self._stopped: WorkerStopped | None = None
        self.applied: Step | None = None

    def batches(self) -> Iterator[Any]:
        """Yield the own micro-batches of one step after the other, to the last epoch."""
        trainer, runtime = self._trainer, self._trainer.runtime
        while runtime.step < trainer.sampler.steps:
            yield from self.next_step()
            self.after_step()
        trainer.end()

    def next_step(self) -> Iterator[Any]:
        """Yield the own micro-batches of the next step. It is not applied if the world breaks."""
        trainer = self._trainer
        step = trainer.runtime.step + 1
        self._own = trainer.begin(step)
        self._broken, self._rendezvous, self.applied = False, False, None
        self._begun = time.perf_counter()
        for micro in self._own:
            self._add_empty_before(micro)
            self._micro, self._stepped = micro, False
            batch = self._moved(trainer.load(step, micro))
            before = self._versions()
            self._parameter_versions = self._count_parameter_changes()
            if micro == self._own[-1]:
                trainer.before_body(last_of_epoch=trainer.sampler.span(step).hi == trainer.sampler.records)
            with self._intercepted:
                yield batch
            self._raise_if_stopped()
            self._check_body(step, micro, before)
            if self._broken:
                return
        if not self._own:
            self._apply()
            self._raise_if_stopped()

    def after_step(self) -> None:
        """Compare, save, and change the world if it is due, unless the world broke in the step."""
        if not self._broken:
            self._trainer.after_body(rendezvous=self._rendezvous)

    def _moved(self, batch: Any) -> Any:
        """Move a batch to the device, as the loaders of Accelerate do."""
        if self._device is None:
            return batch
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(self._device, non_blocking=True), batch)

    def _raise_if_stopped(self) -> None:
        if self._stopped is not None:
            raise self._stopped

    def _count_parameter_changes(self) -> int:
        return sum(parameter._version for parameter in self._parameters)

    def _versions(self) -> dict[str, Any]:
        """Return numbers that change when the program changes an object of the state: they cost next to nothing."""
        return {name: _version(part) for name, part in self._also.items()}

    def _check_body(self, step: int, micro: int, before: dict[str, Any]) -> None:
        if not self._stepped:
            raise ElasticError(
                "NoStep",
                f"optimizer.step() was not called for micro-batch {micro} of step {step}",
                hint="call optimizer.step() for every batch: micro_batches is the gradient accumulation, so remove "
                "that of the loop; a GradScaler cannot be used here",
            )
        if self._micro is None:  # in a block of `step`, which ends at optimizer.step() unless the step is applied
            return
        changed = [name for name, version in self._versions().items() if version != before[name]]
        if changed:
            raise ElasticError(
                "ChangedPerBatch",
                f"{changed[0]} was changed for micro-batch {micro} of step {step}, not once for the step: it would "
                "depend on the number of workers",
                hint="put the body of the loop into `with job.step():`; what follows optimizer.step() there runs once "
                "for every step",
            )

    def _add_empty_before(self, micro: int) -> None:
        """Micro-batches are added in order, also those without records."""
        block = self._trainer.runtime.block
        earlier = [number for number in self._own if number < micro]
        for empty in range(earlier[-1] + 1 if earlier else block.start, micro):
            self._trainer.add_empty(empty)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Compute one micro-batch in this block."""
        if self._micro is None:
            raise ElasticError(
                "NoBatch", "job.step() was entered without a batch", hint="use it in the body of job.batches(...)"
            )
        self._in_block = True
        try:
            yield
        except _BlockEnds:
            pass
        finally:
            self._micro = None
            self._in_block = False

    def _on_step(self) -> None:
        micro = self._micro
        if micro is None or self._stepped:
            raise ElasticError(
                "SecondStep",
                "optimizer.step() was called twice for one batch",
                hint="call it once for every batch of job.batches or job.epochs",
            )
        if self._count_parameter_changes() != self._parameter_versions:
            raise ElasticError(
                "ForeignStep",
                "the parameters were changed before optimizer.step(), for example by another optimizer: only gradients "
                "that the optimizer of this loop applies are averaged over the workers",
                hint="use one optimizer for all parameters of the model, or job.train with several optimizers",
            )
        self._check_buffers()
        self._stepped = True
        self._trainer.add(self._trainer.runtime.step + 1, micro)
        last = micro == self._own[-1]
        if last:
            with self._intercepted.suspended():
                self._apply()
        if self._in_block and (self._broken or not last):
            raise _BlockEnds

    def _apply(self) -> None:
        trainer = self._trainer
        block = trainer.runtime.block
        for empty in range(self._own[-1] + 1 if self._own else block.start, block.stop):
            trainer.add_empty(empty)
        if self._own:
            trainer.measure_cost((time.perf_counter() - self._begun) / len(self._own))
        try:
            total, self._rendezvous = trainer.apply(trainer.runtime.step + 1)
        except GroupBroken as error:
            self._broken = True
            try:
                trainer.retry(error)
            except WorkerStopped as stopped:  # not in the program's own code: the iterator raises it
                self._stopped = stopped
            return
        self.applied = trainer.report(total)

    def _check_buffers(self) -> None:
        """After the first forward pass: a buffer that it changed must be one of those that a step averages."""
        watch, self._watch = self._watch, None
        unknown = sorted(watch.changed() - self._buffers.names) if watch is not None else []
        if unknown:
            raise ElasticError(
                "UnknownBuffer",
                f"the forward pass changes the buffer {unknown[0]}, which job.batches cannot average over the workers",
                hint="use job.train with a loss function, which finds such buffers",
            )


def _version(part: Any) -> Any:
    if isinstance(part, Values):
        return part.state_dict()
    if isinstance(part, torch.nn.Module):
        return sum(tensor._version for tensor in (*part.parameters(), *part.buffers()))
    scheduler = getattr(part, "scheduler", part)  # Accelerate wraps it
    return int(getattr(scheduler, "last_epoch", 0))


class _InterceptedStep:
    """Replaces the `step` of an optimizer while the program has a micro-batch.

    Args:
        optimizer: the optimizer.
        on_step: what its `step` does meanwhile.
    """

    def __init__(self, optimizer: Any, on_step: Any) -> None:
        self._optimizer = optimizer
        self._on_step = on_step
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = vars(self._optimizer).get("step")  # a scheduler may have replaced it

        def step(closure: Any = None, **kwargs: Any) -> None:
            if closure is not None:
                raise ElasticError(
                    "NeedsClosure",
                    "optimizer.step() got a closure, which would compute the loss again",
                    hint="compute the loss and call backward before optimizer.step(), without a closure",
                )
            self._optimizer._opt_called = True  # like the next line: without it, schedulers warn
            self._on_step()

        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        self._optimizer.step = step

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            vars(self._optimizer).pop("step", None)
        else:
            self._optimizer.step = self._before

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """The optimizer itself steps in this block."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()
