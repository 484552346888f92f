"""The training loop: every step is applied exactly once, by all members of the world or by none."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchyard.elastic.checkpoint.manager import CheckpointManager
from torchyard.elastic.errors import ElasticError, JobFailed
from torchyard.elastic.reduce.fast import FastReducer
from torchyard.elastic.reduce.gradient_buffer import LOSS, GradientBuffer, RunningStatistics
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import StopCause, WorkerPhase
from torchyard.elastic.worker.loader import MicroBatchLoader
from torchyard.elastic.worker.seeding import seed_generators
from torchyard.elastic.worker.unchanged import UnchangedProgram
from torchyard.elastic.worker.update import OptimizerUpdate
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


class Trainer:
    """Trains in the worlds that a runtime enters.

    Args:
        runtime: the worker's membership in its job.
        loader: loads micro-batches.
        reducer: averages gradients over the world.
        loss: returns the mean loss of one collated micro-batch.
        update: turns the mean gradient into new parameters.
        program: checks that the program does not change what a training fixes.
        digest_every: compare the states of all workers every this many steps; 0 never does.
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
        program: UnchangedProgram,
        digest_every: int = 0,
        checkpoint_manager: CheckpointManager | None = None,
    ) -> None:
        self.runtime = runtime
        self.sampler: StepSampler = runtime.sampler
        self._loader = loader
        self._reducer = reducer
        self._loss = loss
        self._update = update
        self._program = program
        self._digest_every = digest_every
        self._checkpoint_manager = checkpoint_manager
        self._statistics = RunningStatistics(reducer.layout)
        runtime.on_enter(lambda: reducer.enter_world(runtime.group, runtime.blocks))

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
            if not self._compare():
                continue
            if self._checkpoint_manager is not None:
                self._checkpoint_manager.after_step(runtime)
            if rendezvous and runtime.step < sampler.steps:
                runtime.rendezvous()
        if self._checkpoint_manager is not None:
            self._checkpoint_manager.close()  # the job is done when its last checkpoint is durable
        runtime.finish()

    def _compare(self) -> bool:
        """Compare the states of all workers if it is due; return False if the world broke meanwhile."""
        runtime = self.runtime
        last = runtime.step == self.sampler.steps
        self._program.check()
        if not self._digest_every or not (last or runtime.step % self._digest_every == 0):
            return True
        try:
            runtime.compare_states(None if last else runtime.step // self._digest_every, self._program.likely_cause)
        except GroupBroken as error:
            runtime.leave_broken_group(error)
            return False
        return True

    def _attempt(self, step: int) -> tuple[GradientBuffer, bool]:
        """Compute, reduce and apply one step. Nothing changes before every bucket has arrived.

        Returns:
            the totals of the step, and whether the world ends after it.
        """
        runtime, reducer = self.runtime, self._reducer
        self._program.check_trainable()
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
        self._update.apply(total.tail[LOSS])
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
            runtime.report_failure(step, micro, error, self._record_ids(step, micro))
            raise _explain(error) from error
        self._reducer.add(micro, loss.detach(), weight=weight)

    def _record_ids(self, step: int, micro: int) -> list[int]:
        try:
            return [int(record) for record in self._loader.record_ids(step, micro)]
        except Exception:  # the program's sampler is what failed
            return []

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
        runtime.step_applied(loss, "")
        runtime.set_phase(WorkerPhase.OUTSIDE)
        last = span.hi == self.sampler.records
        return Step(runtime.step, span.epoch, last, loss, runtime.group.size, runtime.rank)


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
