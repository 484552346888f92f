"""The training loop: every step is applied exactly once, by all members of the world or by none."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from torchyard.elastic.checkpoint.manager import CheckpointManager
from torchyard.elastic.errors import ElasticError, JobFailed
from torchyard.elastic.reduce.fast import FastReducer
from torchyard.elastic.reduce.gradient_buffer import LOSS, GradientBuffer, RunningStatistics, clear_gradients
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import StopCause, WorkerPhase
from torchyard.elastic.worker.loader import MicroBatchLoader
from torchyard.elastic.world.coordinator_client import WorkerStopped
from torchyard.elastic.world.process_group import GroupBroken
from torchyard.elastic.world.runtime import WorkerRuntime

COST_SMOOTHING = 0.8
"""The weight of the earlier cost of a micro-batch in its moving average: it covers about ten steps."""


@dataclass(frozen=True, slots=True)
class Step:
    """One applied step, as the body of the loop sees it.

    Attributes:
        number: the number of the step, from 1.
        epoch: the epoch of its records, from 0.
        last_of_epoch: whether it is the last step of its epoch.
        loss: the mean loss over the records of the step.
        world: the number of workers that computed it.
        rank: the rank of this worker.
    """

    number: int
    epoch: int
    last_of_epoch: bool
    loss: float
    world: int
    rank: int


@dataclass(frozen=True, slots=True)
class OptimizerUpdate:
    """Turns gradients into new parameters.

    Attributes:
        optimizer: a torch optimizer.
        parameters: the parameters whose gradients `clip_norm` limits.
        clip_norm: the maximum norm of the gradients; None does not clip.
        scaler: a `torch.amp.GradScaler`; None does not scale the loss.
        scheduler: a learning rate scheduler that advances after every step; None keeps the rate.
    """

    optimizer: Any
    parameters: list[torch.nn.Parameter]
    clip_norm: float | None = None
    scaler: Any = None
    scheduler: Any = None

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss to call backward on."""
        scaled: torch.Tensor = self.scaler.scale(loss) if self.scaler is not None else loss
        return scaled

    def apply(self) -> None:
        """Update the parameters with the gradients that they have."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()


class Trainer:
    """Trains in the worlds that a runtime enters.

    Args:
        runtime: the worker's membership in its job.
        loader: loads micro-batches.
        reducer: averages gradients over the world.
        loss: returns the mean loss of one collated micro-batch.
        update: turns the mean gradient into new parameters.
        digest_every: add the digest of the model to the ledger every this many steps; 0 never does.
        checkpoint_manager: snapshots and checkpoints; None for neither.
    """

    def __init__(
        self,
        runtime: WorkerRuntime,
        loader: MicroBatchLoader,
        reducer: StrictReducer | FastReducer,
        *,
        loss: Callable[[Any], torch.Tensor],
        update: OptimizerUpdate,
        digest_every: int = 0,
        checkpoint_manager: CheckpointManager | None = None,
    ) -> None:
        self.runtime = runtime
        self.sampler: StepSampler = runtime.sampler
        self._loader = loader
        self._reducer = reducer
        self._loss = loss
        self._update = update
        self._digest_every = digest_every
        self._checkpoint_manager = checkpoint_manager
        self._statistics = RunningStatistics(reducer.layout)
        runtime.on_enter(lambda: reducer.enter_world(runtime.group, runtime.blocks))

    def warm_up(self) -> None:
        """Compute one micro-batch and discard the result, before other workers wait for this one.

        Threads, kernels and compiled code are created on first use, which takes from milliseconds to minutes.
        """
        self._statistics.begin()
        seed_generators(self.sampler.rng_seed(1, 0), self._reducer.layout.device)
        with suppress(Exception):  # the first real step raises it again, and reports it
            torch.autograd.backward(self._loss(self._loader.get(1, 0)))
        self._statistics.restore()
        clear_gradients(self._reducer.layout)

    def steps(self) -> Iterator[Step]:
        """Train to the last step, and yield every step after it was applied."""
        runtime, sampler = self.runtime, self.sampler
        while runtime.step < sampler.steps:
            try:
                total, rendezvous = self._attempt(runtime.step + 1)
            except GroupBroken as error:
                runtime.recomputed += 1
                self._statistics.restore()
                runtime.leave_broken_group(error)
                continue
            yield self._report(total)
            if self._checkpoint_manager is not None:
                self._checkpoint_manager.after_step(runtime)
            if rendezvous and runtime.step < sampler.steps:
                runtime.rendezvous()
        if self._checkpoint_manager is not None:
            self._checkpoint_manager.close()  # the job is done when its last checkpoint is durable
        runtime.finish()

    def _attempt(self, step: int) -> tuple[GradientBuffer, bool]:
        """Compute, reduce and apply one step. Nothing changes before every bucket has arrived.

        Returns:
            the totals of the step, and whether the world ends after it.
        """
        runtime, reducer = self.runtime, self._reducer
        self._loader.prepare(step, runtime.block)
        reducer.begin()
        self._statistics.begin()
        begun = time.perf_counter()
        own = [micro for micro in runtime.block if self.sampler.micro_span(step, micro).records]
        for micro in runtime.block:
            if micro in own:
                if micro == own[-1]:
                    reducer.before_last_backward()
                self._compute(step, micro)
            else:
                self._add_empty(micro)
        self._measure_cost((time.perf_counter() - begun) / max(1, len(own)))
        runtime.set_phase(WorkerPhase.REDUCING)
        total, rendezvous = reducer.finish(rendezvous=runtime.rendezvous_pending())
        runtime.set_phase(WorkerPhase.APPLYING)
        self._statistics.apply_mean(total)
        if self._checkpoint_manager is not None:
            self._checkpoint_manager.before_update()
        self._update.apply()
        self._loader.look_ahead(step, runtime.block)
        runtime.step = step
        return total, rendezvous

    def _compute(self, step: int, micro: int) -> None:
        runtime = self.runtime
        try:
            runtime.set_phase(WorkerPhase.LOADING)
            batch = self._loader.get(step, micro)
            runtime.set_phase(WorkerPhase.COMPUTING)
            seed_generators(self.sampler.rng_seed(step, micro), self._reducer.layout.device)
            weight = self.sampler.weight(step, micro)
            self._statistics.rewind()
            loss = self._loss(batch)
            if loss.dim():
                raise ElasticError(
                    "NotAScalar",
                    f"the loss function returned a tensor of shape {tuple(loss.shape)}, not a scalar",
                    hint="return the mean loss",
                )
            loss = loss * weight if weight != 1 else loss
            torch.autograd.backward(self._update.scale(loss))
        except GroupBroken:
            raise
        except Exception as error:
            runtime.report_failure(step, micro, error)
            raise _explain(error) from error
        self._reducer.add(micro, loss.detach(), weight=weight)

    def _add_empty(self, micro: int) -> None:
        """Add zero for a micro-batch without records, which keeps its position in the sum of a short step."""
        self._statistics.rewind()
        self._reducer.add(micro, torch.zeros(()), weight=0.0)

    def _measure_cost(self, cost: float) -> None:
        client = self.runtime.client
        if client is not None:
            earlier = client.heartbeat_state.cost
            average = COST_SMOOTHING * earlier + (1 - COST_SMOOTHING) * cost
            client.heartbeat_state.cost = average if earlier else cost

    def _report(self, total: GradientBuffer) -> Step:
        runtime = self.runtime
        span = self.sampler.span(runtime.step)
        loss = float(total.tail[LOSS])
        digest_due = self._digest_every and runtime.step % self._digest_every == 0
        runtime.step_applied(loss, runtime.state.digest() if digest_due else "")
        runtime.set_phase(WorkerPhase.OUTSIDE)
        last = span.hi == self.sampler.records
        return Step(runtime.step, span.epoch, last, loss, runtime.group.size, runtime.rank)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of the device in use.

    `torch.manual_seed` records its caller for every device that is not initialized, which costs time at each call.
    """
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)
    elif device.type != "cpu":
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)


def _explain(error: Exception) -> Exception:
    """Turn torch's error about a nondeterministic kernel into one that says what to do."""
    if isinstance(error, RuntimeError) and "deterministic" in str(error):
        return ElasticError(
            "NotDeterministic",
            f"strict mode does not allow a kernel that is not deterministic: {str(error).splitlines()[0]}",
            hint="replace the operation, or train with mode='fast'",
        )
    return error


def close_after(trainer: Trainer, steps: Iterator[Step], close: Callable[[], None]) -> Iterator[Step]:
    """Yield all steps, then release resources. The coordinator's `Stop` becomes an end, an exit or an error.

    The code after the loop of a program expects a trained model: a worker without one exits instead.
    """
    # If a program exits inside its loop, this generator is closed at the interpreter's exit: too late to join threads.
    atexit.register(close)
    try:
        yield from steps
    except WorkerStopped as stopped:
        cause = stopped.stop.cause
        if cause is StopCause.FINISHED and trainer.runtime.step == trainer.sampler.steps:
            return
        if cause in (StopCause.FINISHED, StopCause.RETIRED):
            raise SystemExit(0) from None
        raise JobFailed("JobFailed", stopped.stop.message) from None
    finally:
        atexit.unregister(close)
        close()
