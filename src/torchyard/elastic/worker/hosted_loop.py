"""The loop of a framework, such as Hugging Face's Trainer or Lightning: it applies updates and calls callbacks itself.

For every step of the framework, `compute` leaves the mean gradient of the next step in the parameters; then the
framework clips it, steps its optimizer and its scheduler, and calls `applied`. A world that breaks is replaced inside
of `compute`. If another worker has applied the step meanwhile, this worker has received it, and the framework's update
must have no effect: `compute` returns None, the gradients are None, and `applied` restores the received state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.reduce.buffers import BufferWatch
from torchyard.elastic.reduce.gradient_buffer import LOSS
from torchyard.elastic.worker.leaving import leave_on_sigterm
from torchyard.elastic.worker.trainer import Trainer
from torchyard.elastic.worker.training import Training
from torchyard.elastic.worker.training_end import react, seed_afterwards
from torchyard.elastic.world.coordinator_client import WorkerStopped
from torchyard.elastic.world.process_group import GroupBroken
from torchyard.elastic.world.runtime import WorkerConfig, WorkerRuntime
from torchyard.elastic.world.state import Snapshot

Backward = Callable[[Any, float], torch.Tensor]
"""Computes the mean loss of a micro-batch, calls backward with the loss times a weight, and returns the mean loss."""


class HostedLoop:
    """The steps of a training, one call of `compute` and one of `applied` each.

    Args:
        training: the training.
        config: how to reach the coordinator; None trains alone.
        model: the model.
        steps: the last step, if the framework ends before the last epoch does.

    Attributes:
        received: whether the step of the last `compute` came from another worker.
        ended: whether the training is over.
    """

    def __init__(
        self, training: Training, config: WorkerConfig | None, model: torch.nn.Module, *, steps: int | None = None
    ) -> None:
        self._training = training
        self._config = config
        self._trainer: Trainer = training.trainer
        self._model = model
        self._buffers_checked = False
        self._rendezvous = False
        self._step = 0
        self._snapshot: Snapshot | None = None
        self.steps = min(steps or self._trainer.sampler.steps, self._trainer.sampler.steps)
        self.received = self.ended = False

    @property
    def runtime(self) -> WorkerRuntime:
        return self._trainer.runtime

    @property
    def step(self) -> int:
        """The last applied step."""
        return self._trainer.runtime.step

    @property
    def epoch(self) -> float:
        """The epochs that are trained, with a fraction."""
        return self.step / self._trainer.sampler.steps_per_epoch

    @property
    def rank(self) -> int:
        return self._trainer.runtime.rank

    def enter(self) -> None:
        """Enter the first world, and receive or restore the state."""
        try:
            self._trainer.runtime.start(self._config)
            if self._config is not None:
                leave_on_sigterm(self._trainer.runtime)
        except WorkerStopped as stopped:
            react(self._training, stopped.stop)
            self.ended = True
        if self.step >= self.steps:
            self.finish()

    def epoch_tokens(self) -> Iterator[dict[str, Any]]:
        """Yield something for every step to the end of the present epoch: what the framework takes for its batches."""
        per_epoch = self._trainer.sampler.steps_per_epoch
        end = min((self.step // per_epoch + 1) * per_epoch, self.steps)
        while self.step < end and not self.ended:
            yield {}

    def compute(self, backward: Backward) -> float | None:
        """Leave the mean gradient of the next step in the parameters, and return its mean loss.

        Returns:
            None if this worker has received the step, or if the training is over.
        """
        expected = self.step + 1
        self.received = False
        try:
            if self._rendezvous:
                self._rendezvous = False
                self._trainer.runtime.rendezvous()
            while self.step < expected and not self.ended:
                loss = self._attempt(self.step + 1, backward)  # a newer world may have set this worker back
                if loss is not None:
                    return loss
        except WorkerStopped as stopped:
            react(self._training, stopped.stop)
            self.ended = True
        self._receive()
        return None

    def _attempt(self, step: int, backward: Backward) -> float | None:
        trainer = self._trainer
        try:
            own = trainer.begin(step)
            begun = time.perf_counter()
            for micro in trainer.runtime.block:
                if micro in own:
                    trainer.compute_with(step, micro, self._checked(backward), last=micro == own[-1])
                else:
                    trainer.add_empty(micro)
            trainer.measure_cost((time.perf_counter() - begun) / max(1, len(own)))
            total, self._rendezvous = trainer.reduce(step)
        except GroupBroken as error:
            trainer.retry(error)
            return None
        self._step = step
        self._total = total
        return float(total.tail[LOSS])

    def _checked(self, backward: Backward) -> Backward:
        """In the first forward pass: a buffer that it changes must be one of those that a step averages."""
        if self._buffers_checked:
            return backward
        self._buffers_checked = True

        def backward_and_check(batch: Any, weight: float) -> torch.Tensor:
            watch = BufferWatch(self._model)
            loss = backward(batch, weight)
            unknown = sorted(watch.changed() - self._training.buffers.names)
            if unknown:
                raise ElasticError(
                    "UnknownBuffer",
                    f"the forward pass changes the buffer {unknown[0]}, which cannot be averaged over the workers",
                    hint="use job.train with a loss function, which finds such buffers",
                )
            return loss

        return backward_and_check

    def _receive(self) -> None:
        """Keep the received state: what the framework does before `applied` may change it."""
        self.received = True
        snapshot = self._trainer.runtime.state.capture()
        self._snapshot = Snapshot(snapshot.skeleton, [tensor.clone() for tensor in snapshot.tensors])
        self._trainer.clear_gradients()

    def applied(self) -> None:
        """The framework has applied the update: the step is done."""
        trainer = self._trainer
        if self.received:
            assert self._snapshot is not None
            trainer.runtime.state.restore(self._snapshot)
            self._snapshot = None
        else:
            trainer.advance(self._step)
            trainer.report(self._total)
            try:
                self._rendezvous = trainer.compare_and_save() and self._rendezvous
            except WorkerStopped as stopped:
                react(self._training, stopped.stop)
                self.ended = True
        if self.step >= self.steps and not self.ended:
            self.finish()

    def finish(self) -> None:
        """End the training with the present step, and release all resources."""
        if self.ended:
            return
        self.ended = True
        early = self.step < self._trainer.sampler.steps
        try:
            self._trainer.end(early=early)
        except WorkerStopped as stopped:
            react(self._training, stopped.stop)

    def close(self) -> None:
        seed_afterwards(self._training)
        self._training.close()
