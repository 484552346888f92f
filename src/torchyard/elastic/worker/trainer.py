"""The training loop: every step is applied exactly once, by all members of the world or by none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchyard.elastic.checkpoint.manager import CheckpointManager
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.reduce.fast import FastReducer
from torchyard.elastic.reduce.gradient_buffer import LOSS, Gradients, RunningStatistics
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import WorkerPhase
from torchyard.elastic.worker.loader import MicroBatchLoader
from torchyard.elastic.worker.progress_line import ProgressPrinter
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
        self._progress = ProgressPrinter()
        runtime.on_enter(lambda: reducer.enter_world(runtime.group, runtime.blocks))

    @property
    def device(self) -> torch.device:
        """The device of the trained parameters."""
        return self._reducer.layout.device

    def steps(self) -> Iterator[Step]:
        """Train to the last step, and yield every step after it was applied."""
        runtime = self.runtime
        while runtime.step < self.sampler.steps:
            try:
                total, rendezvous = self._attempt(runtime.step + 1)
            except GroupBroken as error:
                self.retry(error)
                continue
            step = self.report(total)
            self.before_body(last_of_epoch=step.last_of_epoch)
            yield step
            self.after_body(rendezvous=rendezvous)
        self.end()

    def before_body(self, *, last_of_epoch: bool) -> None:
        """Remember what the loop's body must not change. Call it before the body runs for a step or a micro-batch."""
        self._program.before_body(last_of_epoch=last_of_epoch)

    def before_epoch(self) -> None:
        """Remember what the body of a loop over epochs must not change. Call it before the body runs for an epoch."""
        self._program.before_epoch()

    def after_body(self, *, rendezvous: bool) -> None:
        """Compare, save, and change the world if it is due. Call it after the loop's body has run for a step."""
        if self.compare_and_save() and rendezvous and self.runtime.step < self.sampler.steps:
            self.runtime.rendezvous()

    def compare_and_save(self) -> bool:
        """Compare the states of all workers and save the own one, if it is due; return False if the world broke."""
        same_world = self._compare()
        if self._checkpoint_manager is not None:
            self._checkpoint_manager.after_step(self.runtime)
        return same_world

    def end(self, *, early: bool = False) -> None:
        """Finish the training after its last step, or after the present one."""
        self._save_last()
        self.runtime.finish(early=early)

    def _save_last(self) -> None:
        """The job is done when its last checkpoint is durable."""
        try:
            if self._checkpoint_manager is not None:
                self._checkpoint_manager.finish()
        except ElasticError as error:
            raise self.runtime.abort_job(error) from None

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

    def retry(self, error: GroupBroken) -> None:
        """The world broke before the step was applied: enter the next one."""
        self.runtime.recomputed += 1
        self._statistics.restore()
        self.runtime.leave_broken_group(error)

    def begin(self, step: int) -> list[int]:
        """Begin a step, and return the own micro-batches that have records."""
        self._program.check_trainable()
        self._loader.prepare(step, self.runtime.block)
        self._reducer.begin()
        self._statistics.begin()
        return [micro for micro in self.runtime.block if self.sampler.micro_span(step, micro).records]

    def load(self, step: int, micro: int) -> Any:
        """Return a micro-batch, and prepare everything for its computation."""
        self.runtime.set_phase(WorkerPhase.LOADING)
        batch = self._loader.get(step, micro)
        self.runtime.set_phase(WorkerPhase.COMPUTING)
        seed_generators(self.sampler.rng_seed(step, micro), self._reducer.layout.device)
        self._statistics.rewind()
        return batch

    def _attempt(self, step: int) -> tuple[Gradients, bool]:
        """Compute, reduce and apply one step. Nothing changes before every bucket has arrived.

        Returns:
            the totals of the step, and whether the world ends after it.
        """
        own = self.begin(step)
        begun = time.perf_counter()
        for micro in self.runtime.block:
            if micro in own:
                if micro == own[-1]:
                    self._reducer.before_last_backward()
                self._compute(step, micro)
            else:
                self.add_empty(micro)
        self.measure_cost((time.perf_counter() - begun) / max(1, len(own)))
        return self.apply(step)

    def apply(self, step: int) -> tuple[Gradients, bool]:
        """Reduce and apply a step whose own micro-batches are all computed."""
        total, rendezvous = self.reduce(step)
        self._update.apply(total.tail[LOSS])
        self.advance(step)
        return total, rendezvous

    def reduce(self, step: int) -> tuple[Gradients, bool]:
        """Leave the mean gradient of a step in the parameters. Its own micro-batches are all computed.

        Returns:
            the totals of the step, and whether the world ends after it.
        """
        runtime, reducer = self.runtime, self._reducer
        runtime.set_phase(WorkerPhase.REDUCING)
        total, rendezvous = reducer.finish(rendezvous=runtime.rendezvous_pending())
        runtime.set_phase(WorkerPhase.APPLYING)
        self._statistics.apply_mean(total)
        seed_generators(self.sampler.update_seed(step), self.device)  # for optimizers that add noise
        if self._checkpoint_manager is not None:
            self._checkpoint_manager.before_update()
        return total, rendezvous

    def advance(self, step: int) -> None:
        """The optimizer has applied a step."""
        self._loader.look_ahead(step, self.runtime.block)
        self.runtime.step = step

    def clear_gradients(self) -> None:
        for parameter in self._reducer.layout.parameters:
            parameter.grad = None

    def _compute(self, step: int, micro: int) -> None:
        runtime = self.runtime
        try:
            batch = self.load(step, micro)
            weight = self.sampler.weight(step, micro)
            loss = require_scalar(self._loss(batch))
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
            return self._loader.record_ids(step, micro)
        except Exception:  # the program's sampler is what failed
            return []

    def compute_with(
        self, step: int, micro: int, backward: Callable[[Any, float], torch.Tensor], *, last: bool
    ) -> None:
        """Compute a micro-batch with the loss and the backward pass of a framework.

        Args:
            step: the step.
            micro: the number of the micro-batch.
            backward: computes the gradients of the weighted mean loss of a micro-batch, and returns the mean loss.
            last: whether it is the last one of this worker.
        """
        try:
            batch = self.load(step, micro)
            if last:
                self._reducer.before_last_backward()
            weight = self.sampler.weight(step, micro)
            loss = backward(batch, weight)
        except (GroupBroken, WorkerStopped):
            raise
        except Exception as error:
            self.runtime.report_failure(step, micro, error, self._record_ids(step, micro))
            raise _explain(error) from error
        self._reducer.add(micro, loss.detach() * weight, weight=weight)

    def add(self, step: int, micro: int) -> None:
        """Add the gradients that a program's own loop has left in the parameters."""
        weight = self.sampler.weight(step, micro)
        gradients = [p.grad for p in self._reducer.layout.parameters if p.grad is not None]
        if weight != 1 and gradients:
            torch._foreach_mul_(gradients, weight)
        self._reducer.add(micro, torch.zeros(()), weight=weight)

    def add_empty(self, micro: int) -> None:
        """Add zero for a micro-batch without records, which keeps its position in the sum of a short step."""
        self._statistics.rewind()
        self._reducer.add(micro, torch.zeros(()), weight=0.0)

    def measure_cost(self, cost: float) -> None:
        client = self.runtime.client
        if client is not None:
            earlier = client.heartbeat_state.cost
            average = COST_SMOOTHING * earlier + (1 - COST_SMOOTHING) * cost
            client.heartbeat_state.cost = average if earlier else cost

    def report(self, total: Gradients) -> Step:
        """Report the applied step, and return what the loop's body sees of it."""
        runtime = self.runtime
        seed_generators(
            self.sampler.body_seed(runtime.step), self.device
        )  # the body must not depend on the micro-batches
        span = self.sampler.span(runtime.step)
        loss = float(total.tail[LOSS])
        runtime.step_applied(loss, "")
        self._progress.applied(runtime.step, self.sampler, loss, runtime.rank)
        runtime.set_phase(WorkerPhase.OUTSIDE)
        last = span.hi == self.sampler.records
        return Step(runtime.step, span.epoch, last, loss, runtime.group.size, runtime.rank)


def require_scalar(loss: Any) -> torch.Tensor:
    """Return what a loss function has returned, or raise if no gradients can be computed from it."""
    if not isinstance(loss, torch.Tensor):
        problem = f"a {type(loss).__name__}, not a tensor"
    elif loss.dim():
        problem = f"a tensor of shape {tuple(loss.shape)}, not a scalar"
    elif loss.is_complex():
        problem = "a complex number, not a real one"
    elif not loss.requires_grad:
        problem = "a tensor without a gradient: it does not depend on a parameter that requires one"
    else:
        return loss
    raise ElasticError("NotAScalar", f"the loss function returned {problem}", hint="return the mean loss, not detached")


def _explain(error: Exception) -> Exception:
    """Turn torch's error about a nondeterministic kernel into one that says what to do."""
    if isinstance(error, RuntimeError) and "deterministic" in str(error):
        return ElasticError(
            "NotDeterministic",
            f"strict mode does not allow a kernel that is not deterministic: {str(error).splitlines()[0]}",
            hint="replace the operation, or train with mode='fast'",
        )
    return error
