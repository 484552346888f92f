"""`PyTorchAllReduceController`: runs a program's function on leased batches, and turns them into steps of the world."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from torchyard.elastic.elasticai.leases import BatchLease
from torchyard.elastic.elasticai.services import DataShardService, RecordIndexService
from torchyard.elastic.errors import ElasticError, JobFailed
from torchyard.elastic.reduce.gradient_buffer import LOSS, RunningStatistics, clear_gradients
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.sidecar import start_sidecar
from torchyard.elastic.wire import StopCause, WorkerPhase
from torchyard.elastic.worker.freed_memory import keep_freed_memory
from torchyard.elastic.worker.leaving import leave_on_sigterm
from torchyard.elastic.worker.seeding import seed_generators
from torchyard.elastic.world.coordinator_client import WorkerStopped
from torchyard.elastic.world.process_group import GroupBroken
from torchyard.elastic.world.runtime import WorkerConfig, WorkerRuntime
from torchyard.elastic.world.state import TrainingState


class PyTorchAllReduceController:
    def __init__(self, *services: Any) -> None:
        """Take the data shard service; older programs pass a master client before it."""
        self.data_shard_service: DataShardService = services[-1]
        self.data_shard_service.on_first_record(self._start)
        self.backward_passes_per_step = 1
        self.global_batch_num_per_step = self.data_shard_service.sampler.micro_batches
        self._model: Any = None
        self._optimizer: Any = None
        self._runtime: WorkerRuntime | None = None
        self._batches: dict[BatchLease, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._done: list[int] = []
        self._calls = 0
        self._joined_late = False
        self._loss: Any = torch.zeros(())

    @property
    def global_completed_batch_num(self) -> int:
        applied = self._runtime.step if self._runtime else 0
        return int(applied * self.global_batch_num_per_step)

    @property
    def batch_count_per_epoch(self) -> int:
        return self.data_shard_service.get_minibatch_count_per_epoch()

    def set_broadcast_model(self, model: torch.nn.Module) -> None:
        self._model = model

    def set_broadcast_optimizer(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def get_current_epoch(self) -> int:
        return self.data_shard_service.get_current_epoch()

    def set_resume_epoch(self, epoch: int) -> None:
        """Do nothing: the ledger knows where to resume."""

    def reset_backward_passes_per_step(self) -> None:
        """Do nothing: the worker's block determines how many passes a step has."""

    def broadcast(self) -> None:
        """Do nothing: state is exchanged when a world forms."""

    def restore(self) -> None:
        """Do nothing: a failure leaves no partial step."""

    def init_horovod_locally(self) -> None:
        """Do nothing: Horovod is not used."""

    @contextmanager
    def scope(self) -> Iterator[None]:
        try:
            self._start()
            yield
            self._end()
        except WorkerStopped as stopped:
            if stopped.stop.cause in (StopCause.RETIRED, StopCause.FINISHED):
                raise SystemExit(0) from None
            raise JobFailed("JobFailed", stopped.stop.message) from None
        finally:
            if self._runtime is not None:
                self._runtime.close()

    def _start(self) -> None:
        if self._runtime is not None:
            return
        if self._model is None or self._optimizer is None:
            raise ElasticError(
                "NoModel",
                "records are fetched before the model and the optimizer are set",
                hint="call set_broadcast_model and set_broadcast_optimizer first",
            )
        sampler = self.data_shard_service.sampler
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        self._reducer = StrictReducer(self._model, sampler.micro_batches)
        keep_freed_memory()
        self._statistics = RunningStatistics(self._reducer.layout)
        config = {"sampler": asdict(sampler), "mode": "strict", "backend": "gloo", "threads": torch.get_num_threads()}
        self._optimizer_settings = _OptimizerSettings(self._optimizer)
        state = TrainingState({"model": self._model, "optimizer": self._optimizer_settings})
        runtime = self._runtime = WorkerRuntime(state, sampler, config=config)
        runtime.on_enter(self._entered)
        start_sidecar()
        worker_config = WorkerConfig.from_environment()
        runtime.start(worker_config)
        self._joined_late = runtime.step > 0
        if self._joined_late:
            # Others have made its steps. Without this, a schedule in the loop warns that the optimizer has made none.
            self._optimizer._opt_called = True
        if worker_config is not None:
            leave_on_sigterm(runtime)

    def _entered(self) -> None:
        """Drop the batches of other workers, and start the step again."""
        runtime = self._started()
        self._reducer.enter_world(runtime.group, runtime.blocks)
        self._restart_step()
        self._batches = {
            lease: batch
            for lease, batch in self._batches.items()
            if lease.step > runtime.step and lease.micro in runtime.block
        }
        self.data_shard_service.set_position(runtime.step, runtime.block)

    def _started(self) -> WorkerRuntime:
        assert self._runtime is not None
        return self._runtime

    def _restart_step(self) -> None:
        self._done = []
        self._reducer.begin()
        self._statistics.begin()

    def elastic_run(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function that trains one batch. Its optimizer step becomes part of the world's step."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._start()
            if self._calls == 1 and self._joined_late:
                self._skip_old_epochs()
            lease = self.data_shard_service.leases.get(self._calls)
            self._calls += 1
            if lease is not None:
                self._batches[lease] = (args, kwargs)
            while self._advance(func):
                pass
            self._started().set_phase(WorkerPhase.OUTSIDE)
            return self._loss

        return run

    train_one_batch_with_retries = elastic_run

    def _advance(self, func: Callable[..., Any]) -> bool:
        """Compute the available batches of the next step; return whether the step ended."""
        runtime, sampler = self._started(), self.data_shard_service.sampler
        step = runtime.step + 1
        if step > sampler.steps:
            return False
        for micro in runtime.block:
            if micro in self._done:
                continue
            if sampler.micro_span(step, micro).records:
                if BatchLease(step, micro) not in self._batches:
                    return False
                self._compute(func, BatchLease(step, micro))
            else:
                clear_gradients(self._reducer.layout)
                self._reducer.add(micro, torch.zeros(()), weight=0.0)
            self._done.append(micro)
        return self._finish(step)

    def _compute(self, func: Callable[..., Any], lease: BatchLease) -> None:
        sampler, size = self.data_shard_service.sampler, self.data_shard_service.batch_size
        args, kwargs = self._batches[lease]
        records = sampler.micro_span(lease.step, lease.micro).records
        self._started().set_phase(WorkerPhase.COMPUTING)
        seed_generators(sampler.rng_seed(lease.step, lease.micro), self._reducer.layout.device)
        self._statistics.rewind()
        clear_gradients(self._reducer.layout)
        try:
            with _without_steps(self._optimizer):
                loss = func(
                    *(_remove_padding(item, size, records) for item in args),
                    **{name: _remove_padding(item, size, records) for name, item in kwargs.items()},
                )
        except Exception as error:
            self._started().report_failure(lease.step, lease.micro, error)
            raise
        weight = sampler.weight(lease.step, lease.micro)
        gradients = [p.grad for p in self._reducer.layout.parameters if p.grad is not None]
        torch._foreach_mul_(gradients, weight)
        self._loss = loss
        weighted = loss.detach() * weight if isinstance(loss, torch.Tensor) and loss.dim() == 0 else torch.zeros(())
        self._reducer.add(lease.micro, weighted, weight=weight)

    def _finish(self, step: int) -> bool:
        runtime = self._started()
        try:
            runtime.set_phase(WorkerPhase.REDUCING)
            total, rendezvous = self._reducer.finish(rendezvous=runtime.rendezvous_pending())
            self._broadcast_settings()
        except GroupBroken as error:
            runtime.recomputed += 1
            self._statistics.restore()
            runtime.leave_broken_group(error)
            return True
        runtime.set_phase(WorkerPhase.APPLYING)
        self._statistics.apply_mean(total)
        self._optimizer.step()
        self._optimizer_settings.note_used()
        runtime.step = step
        runtime.step_applied(float(total.tail[LOSS]), "")
        self._batches = {lease: batch for lease, batch in self._batches.items() if lease.step > step}
        self._restart_step()
        self.data_shard_service.set_position(step, runtime.block)
        if rendezvous and step < self.data_shard_service.sampler.steps:
            runtime.rendezvous()
        return True

    def _skip_old_epochs(self) -> None:
        """Undo the settings of a late worker's loop, which has just entered its first epoch.

        What the loop has done to the settings counts only if that epoch begins now for all workers.
        """
        step = self._started().step
        if self.data_shard_service.sampler.span(step).epoch == self.data_shard_service.get_current_epoch():
            self._optimizer_settings.reset()

    def _broadcast_settings(self) -> None:
        """Use the first rank's settings on all ranks: the loop of a worker that has just joined may have wrong ones."""
        group = self._started().group
        own = torch.tensor(self._optimizer_settings.current(), dtype=torch.float64)
        if group.size > 1 and len(own):
            gathered = own.new_empty(group.size * len(own))
            group.wait(group.all_gather(gathered, own))
            self._optimizer_settings.set_all(gathered[: len(own)].tolist())

    def _end(self) -> None:
        """The program has left its loop."""
        runtime = self._started()
        remaining = self.data_shard_service.sampler.steps - runtime.step
        if remaining:
            raise ElasticError(
                "StoppedEarly",
                f"the program left its loop {remaining} steps before the end",
                hint="let the loop run until the loader ends; reduce num_epochs to train less",
            )
        runtime.finish()


def _remove_padding(item: Any, size: int, records: int) -> Any:
    """Remove the padding of a short batch."""
    if records < size and isinstance(item, torch.Tensor) and item.dim() and item.shape[0] == size:
        return item[:records]
    return item


@contextmanager
def _without_steps(optimizer: Any) -> Iterator[None]:
    """Replace `optimizer.step()` by nothing: in the program's function it only marks the end of backward."""
    earlier = vars(optimizer).get("step")  # a scheduler may have replaced it
    optimizer.step = lambda *args, **kwargs: None
    try:
        yield
    finally:
        if earlier is None:
            del optimizer.step
        else:
            optimizer.step = earlier


class _OptimizerSettings:
    """An optimizer's learning rate and other numbers, which these programs change in their loop, epoch by epoch.

    Other workers receive them as the last step used them: what this worker's loop has changed since, the other worker's
    loop changes too when it reaches that step.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._last_used: list[dict[str, float]] = []

    def _entries(self) -> list[tuple[dict[str, Any], str]]:
        return [(group, name) for group in self._optimizer.param_groups for name in sorted(_numeric_settings(group))]

    def current(self) -> list[float]:
        return [group[name] for group, name in self._entries()]

    def set_all(self, values: list[float]) -> None:
        for (group, name), value in zip(self._entries(), values, strict=True):
            if group[name] != value:
                group[name] = value

    def note_used(self) -> None:
        self._last_used = [_numeric_settings(group) for group in self._optimizer.param_groups]

    def reset(self) -> None:
        for group, last_used in zip(self._optimizer.param_groups, self._last_used, strict=True):
            group.update(last_used)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._optimizer.state_dict()
        for group, last_used in zip(state["param_groups"], self._last_used, strict=False):
            group.update(last_used)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state_dict)
        self.note_used()


def _numeric_settings(group: dict[str, Any]) -> dict[str, float]:
    return {
        name: value for name, value in group.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def create_elastic_controller(
    batch_size: int, num_epochs: int | None = None, dataset_size: int | None = None, shuffle: bool = False
) -> PyTorchAllReduceController:
    return PyTorchAllReduceController(RecordIndexService(batch_size, num_epochs, dataset_size, shuffle=shuffle))


def DistributedOptimizer(optimizer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802  # the name programs import
    """Add the methods that programs may call. Gradients are averaged with or without this wrapper."""
    optimizer.set_backward_passes_per_step = lambda passes: None
    optimizer.synchronize = lambda: None
    optimizer.skip_synchronize = _no_op
    return optimizer


@contextmanager
def _no_op() -> Iterator[None]:
    yield
