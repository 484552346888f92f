"""A program that keeps its own loop: it gets micro-batches, computes gradients, and calls `optimizer.step()`.

for batch in job.batches(model, optimizer, data=loader, micro_batches=4):
    with job.step():
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        scheduler.step()

In the block, `optimizer.step()` adds the gradients of one micro-batch. After the last own one the step is reduced and
applied. What follows in the block runs once for every applied step: for all other micro-batches, and when the world
broke, the block ends there. A step that was not applied is simply delivered again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.reduce.buffers import BufferWatch, MutableBuffers
from torchyard.elastic.worker.trainer import Step, Trainer
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
    """

    def __init__(self, trainer: Trainer, model: torch.nn.Module, optimizer: Any, buffers: MutableBuffers) -> None:
        self._trainer = trainer
        self._optimizer = optimizer
        self._model = model
        self._buffers = buffers
        self._watch: BufferWatch | None = BufferWatch(model)
        self._micro: int | None = None
        self._own: list[int] = []
        self._stepped = self._broken = self._rendezvous = False
        self._begun = 0.0
        self.applied: Step | None = None

    def batches(self) -> Iterator[Any]:
        """Yield the own micro-batches of one step after the other."""
        trainer, runtime = self._trainer, self._trainer.runtime
        while runtime.step < trainer.sampler.steps:
            step = runtime.step + 1
            self._own = trainer.begin(step)
            self._broken, self._rendezvous, self.applied = False, False, None
            self._begun = time.perf_counter()
            for micro in self._own:
                self._add_empty_before(micro)
                self._micro, self._stepped = micro, False
                yield trainer.load(step, micro)
                if not self._stepped:
                    raise ElasticError(
                        "NoStep",
                        f"optimizer.step() was not called for micro-batch {micro} of step {step}",
                        hint="compute the loss, call backward and optimizer.step() inside `with job.step():`; a "
                        "GradScaler cannot be used there",
                    )
                if self._broken:
                    break
            if not self._own:
                self._apply()
            if not self._broken:
                trainer.after_body(rendezvous=self._rendezvous)
        trainer.end()

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
        before = vars(self._optimizer).get("step")  # a scheduler may have replaced it
        real = self._optimizer.step
        self._optimizer.step = lambda *args, **kwargs: self._on_step(real)
        try:
            yield
        except _BlockEnds:
            pass
        finally:
            self._micro = None
            if before is None:
                del self._optimizer.step
            else:
                self._optimizer.step = before

    def _on_step(self, real: Any) -> None:
        step, micro = self._trainer.runtime.step + 1, self._micro
        assert micro is not None
        self._check_buffers()
        self._stepped = True
        self._trainer.add(step, micro)
        if micro != self._own[-1]:
            raise _BlockEnds
        self._optimizer.step = real
        self._apply()
        if self._broken:
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
            trainer.retry(error)
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
