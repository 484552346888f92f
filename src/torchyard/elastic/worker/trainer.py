"""The training loop: steps that are applied once, by everyone or by no one, through any change of the world."""

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
from torchyard.elastic.reduce.gradient_buffer import GradientBuffer, RunningStatistics, forget_gradients
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.worker.loader import MicroBatchLoader
from torchyard.elastic.world.coordinator_client import WorkerStopped
from torchyard.elastic.world.process_group import GroupBroken
from torchyard.elastic.world.runtime import WorkerRuntime

COST_MEMORY = 0.8
"""How slowly the measured cost of a micro-batch follows: about the last ten steps."""


@dataclass(frozen=True, slots=True)
class Step:
    """One applied step, as the body of the loop sees it."""

    number: int
    epoch: int
    last_of_epoch: bool
    loss: float
    world: int
    rank: int


@dataclass(frozen=True, slots=True)
class OptimizerUpdate:
    """How gradients become new parameters: optional clipping, loss scaling and schedule around the optimiser."""

    optimizer: Any
    parameters: list[torch.nn.Parameter]
    clip_norm: float | None = None
    scaler: Any = None
    scheduler: Any = None

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.scaler.scale(loss) if self.scaler is not None else loss
        return scaled

    def apply(self) -> None:
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
    def __init__(
        self,
        runtime: WorkerRuntime,
        loader: MicroBatchLoader,
        reducer: StrictReducer | FastReducer,
        *,
        loss: Callable[[Any], torch.Tensor],
        update: OptimizerUpdate,
        digest_every: int = 0,
        keeper: CheckpointManager | None = None,
    ) -> None:
        self.runtime = runtime
        self.order: StepSampler = runtime.order
        self._loader = loader
        self._reducer = reducer
        self._loss = loss
        self._update = update
        self._digest_every = digest_every
        self._keeper = keeper
        self._statistics = RunningStatistics(reducer.layout)
        self._cuda = reducer.layout.device.type == "cuda"
        runtime.on_enter(lambda: reducer.enter(runtime.group, runtime.blocks))

    def practise(self) -> None:
        """Compute a micro-batch for nothing before others wait for this worker.

        Threads, kernels and compiled code are made on first use, which takes from milliseconds to minutes.
        """
        self._statistics.begin()
        seed_generators(self.order.rng_key(1, 0), self._reducer.layout.device)
        with suppress(Exception):  # the step that meets it in earnest tells it
            torch.autograd.backward(self._loss(self._loader.get(1, 0)))
        self._statistics.undo()
        forget_gradients(self._reducer.layout)

    def steps(self) -> Iterator[Step]:
        runtime, order = self.runtime, self.order
        while runtime.step < order.steps:
            try:
                total, change = self._attempt(runtime.step + 1)
            except GroupBroken as fault:
                runtime.recomputed += 1
                self._statistics.undo()
                runtime.broke(fault)
                continue
            yield self._applied(total)
            if self._keeper is not None:
                self._keeper.after_step(runtime)
            if change and runtime.step < order.steps:
                runtime.reform()
        if self._keeper is not None:
            self._keeper.close()  # the last checkpoint belongs to the job: it is done when that is durable
        runtime.finish()

    def _attempt(self, step: int) -> tuple[GradientBuffer, bool]:
        """Compute and reduce one step, then apply it. Nothing is changed unless every bucket has arrived."""
        runtime, reducer = self.runtime, self._reducer
        self._loader.prepare(step, runtime.block)
        reducer.begin()
        self._statistics.begin()
        begun = time.perf_counter()
        own = [micro for micro in runtime.block if self.order.micro_span(step, micro).records]
        for micro in runtime.block:
            if micro in own:
                if micro == own[-1]:
                    reducer.expect_last(micro)
                self._compute(step, micro)
            else:
                self._skip(micro)
        self._measure((time.perf_counter() - begun) / max(1, len(own)))
        runtime.phase("reducing")
        total, change = reducer.finish(change=runtime.change_wanted())
        runtime.phase("applying")
        self._statistics.settle(total)
        if self._keeper is not None:
            self._keeper.before_update()
        self._update.apply()
        self._loader.look_ahead(step, runtime.block)
        runtime.step = step
        return total, change

    def _compute(self, step: int, micro: int) -> None:
        runtime = self.runtime
        try:
            runtime.phase("loading")
            batch = self._loader.get(step, micro)
            runtime.phase("computing")
            seed_generators(self.order.rng_key(step, micro), self._reducer.layout.device)
            weight = self.order.weight(step, micro)
            self._statistics.rewind()
            loss = self._loss(batch)
            if loss.dim():
                raise ElasticError("NotAScalar", "the loss function must return one number", hint="return its mean")
            loss = loss * weight if weight != 1 else loss
            torch.autograd.backward(self._update.scaled(loss))
        except GroupBroken:
            raise
        except Exception as error:
            runtime.raised(step, micro, error)
            raise _explained(error) from error
        self._reducer.add(micro, loss.detach(), weight=weight)

    def _skip(self, micro: int) -> None:
        """A step so short that this micro-batch is empty still takes its place in the sum, as zero."""
        self._statistics.rewind()
        self._reducer.add(micro, torch.zeros(()), weight=0.0)

    def _measure(self, cost: float) -> None:
        link = self.runtime.link
        if link is not None:
            held = link.pulse.cost
            link.pulse.cost = cost if not held else COST_MEMORY * held + (1 - COST_MEMORY) * cost

    def _applied(self, total: GradientBuffer) -> Step:
        runtime = self.runtime
        span = self.order.span(runtime.step)
        loss = float(total.tail[1])
        due = self._digest_every and runtime.step % self._digest_every == 0
        runtime.applied(loss, runtime.state.digest() if due else "")
        runtime.phase("outside")
        last = span.hi == self.order.records
        return Step(runtime.step, span.epoch, last, loss, runtime.group.size, runtime.rank)


def seed_generators(key: int, device: torch.device) -> None:
    """`torch.manual_seed` for the devices in use: for those that are not, it notes its caller each time, at a cost."""
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(key)
    elif device.type != "cpu":
        torch.manual_seed(key)
        return
    torch.default_generator.manual_seed(key)


def _explained(error: Exception) -> Exception:
    """Strict mode turns a kernel without a deterministic form into an error that says what to do."""
    if isinstance(error, RuntimeError) and "deterministic" in str(error):
        return ElasticError(
            "NotDeterministic",
            f"strict mode met a kernel that is not deterministic: {str(error).splitlines()[0]}",
            hint="replace the operation, or train with mode='fast'",
        )
    return error


def closing(trainer: Trainer, steps: Iterator[Step], close: Callable[[], None]) -> Iterator[Step]:
    """Turn the coordinator's word into what a program expects: an end, an exit, or an error.

    What follows the loop in a program is for a trained model: a worker without one exits instead.
    """
    # A program that exits inside its loop leaves this generator to the interpreter's end: too late to join a thread.
    atexit.register(close)
    try:
        yield from steps
    except WorkerStopped as ended:
        if ended.stop.why == "finished" and trainer.runtime.step == trainer.order.steps:
            return
        if ended.stop.why in ("finished", "retired"):
            raise SystemExit(0) from None
        raise JobFailed("JobFailed", ended.stop.message) from None
    finally:
        atexit.unregister(close)
        close()
