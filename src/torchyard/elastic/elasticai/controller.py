"""`PyTorchAllReduceController`: runs a program's function on leased batches and makes steps of them with the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from torchyard.elastic import api
from torchyard.elastic.elasticai.leases import BatchLease
from torchyard.elastic.elasticai.services import DataShardService, RecordIndexService
from torchyard.elastic.errors import ElasticError, JobFailed
from torchyard.elastic.reduce.gradient_buffer import RunningStatistics, forget_gradients
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.sidecar import serve_beside
from torchyard.elastic.worker.trainer import seed_generators
from torchyard.elastic.world.coordinator_client import WorkerStopped
from torchyard.elastic.world.process_group import GroupBroken
from torchyard.elastic.world.runtime import WorkerConfig, WorkerRuntime
from torchyard.elastic.world.state import TrainingState


class PyTorchAllReduceController:
    def __init__(self, *services: Any) -> None:
        """Takes the data shard service; programs of the older form pass a master client before it."""
        self.data_shard_service: DataShardService = services[-1]
        self.data_shard_service.started_by(self._begin)
        self.backward_passes_per_step = 1
        self.global_batch_num_per_step = self.data_shard_service.order.micro_batches
        self._model: Any = None
        self._optimizer: Any = None
        self._runtime: WorkerRuntime | None = None
        self._held: dict[BatchLease, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._done: list[int] = []
        self._calls = 0
        self._late = False
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
        """Where to resume is in the ledger."""

    def reset_backward_passes_per_step(self) -> None:
        """How many passes make a step follows from this worker's share."""

    def broadcast(self) -> None:
        """State is handed over when a world forms."""

    def restore(self) -> None:
        """Nothing is half done after a failure."""

    def init_horovod_locally(self) -> None:
        """There is no Horovod underneath."""

    @contextmanager
    def scope(self) -> Iterator[None]:
        try:
            self._begin()
            yield
            self._end()
        except WorkerStopped as ended:
            if ended.stop.why in ("retired", "finished"):
                raise SystemExit(0) from None
            raise JobFailed("JobFailed", ended.stop.message) from None
        finally:
            if self._runtime is not None:
                self._runtime.close()

    def _begin(self) -> None:
        if self._runtime is not None:
            return
        if self._model is None or self._optimizer is None:
            raise ElasticError(
                "NoModel",
                "records are fetched before the model and the optimiser are known",
                hint="call set_broadcast_model and set_broadcast_optimizer first",
            )
        order = self.data_shard_service.order
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        self._reducer = StrictReducer(self._model, order.micro_batches)
        self._statistics = RunningStatistics(self._reducer.layout)
        config = {"order": asdict(order), "mode": "strict", "backend": "gloo", "threads": torch.get_num_threads()}
        self._settings = _OptimizerSettings(self._optimizer)
        state = TrainingState({"model": self._model, "optimizer": self._settings})
        runtime = self._runtime = WorkerRuntime(state, order, config=config)
        runtime.on_enter(self._entered)
        serve_beside()
        seat = WorkerConfig.from_environment()
        runtime.start(seat)
        self._late = runtime.step > 0
        if seat is not None:
            api.leave_on_sigterm(runtime)

    def _entered(self) -> None:
        """A world began: what is not ours any more is dropped, what was half summed is summed again."""
        runtime = self._started()
        self._reducer.enter(runtime.group, runtime.blocks)
        self._restart_step()
        self._held = {
            lease: batch
            for lease, batch in self._held.items()
            if lease.step > runtime.step and lease.micro in runtime.block
        }
        self.data_shard_service.moved(runtime.step, runtime.block)

    def _started(self) -> WorkerRuntime:
        assert self._runtime is not None
        return self._runtime

    def _restart_step(self) -> None:
        self._done = []
        self._reducer.begin()
        self._statistics.begin()

    def elastic_run(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function that trains one batch. Its optimiser step becomes a part of the world's step."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._begin()
            if self._calls == 1 and self._late:
                self._pass_over_old_epochs()
            lease = self.data_shard_service.leases.of(self._calls)
            self._calls += 1
            if lease is not None:
                self._held[lease] = (args, kwargs)
            while self._advance(func):
                pass
            self._started().phase("outside")
            return self._loss

        return run

    train_one_batch_with_retries = elastic_run

    def _advance(self, func: Callable[..., Any]) -> bool:
        """Do what can be done with the batches at hand; True if a step came of it."""
        runtime, order = self._started(), self.data_shard_service.order
        step = runtime.step + 1
        if step > order.steps:
            return False
        for micro in runtime.block:
            if micro in self._done:
                continue
            if order.micro_span(step, micro).records:
                if BatchLease(step, micro) not in self._held:
                    return False
                self._compute(func, BatchLease(step, micro))
            else:
                forget_gradients(self._reducer.layout)
                self._reducer.add(micro, torch.zeros(()), weight=0.0)
            self._done.append(micro)
        return self._finish(step)

    def _compute(self, func: Callable[..., Any], lease: BatchLease) -> None:
        order, size = self.data_shard_service.order, self.data_shard_service.batch_size
        args, kwargs = self._held[lease]
        records = order.micro_span(lease.step, lease.micro).records
        self._started().phase("computing")
        seed_generators(order.rng_key(lease.step, lease.micro), self._reducer.layout.device)
        self._statistics.rewind()
        forget_gradients(self._reducer.layout)
        try:
            with _no_steps(self._optimizer):
                loss = func(
                    *(_cut(item, size, records) for item in args),
                    **{name: _cut(item, size, records) for name, item in kwargs.items()},
                )
        except Exception as error:
            self._started().raised(lease.step, lease.micro, error)
            raise
        weight = order.weight(lease.step, lease.micro)
        gradients = [p.grad for p in self._reducer.layout.parameters if p.grad is not None]
        torch._foreach_mul_(gradients, weight)
        self._loss = loss
        told = loss.detach() * weight if isinstance(loss, torch.Tensor) and loss.dim() == 0 else torch.zeros(())
        self._reducer.add(lease.micro, told, weight=weight)

    def _finish(self, step: int) -> bool:
        runtime = self._started()
        try:
            runtime.phase("reducing")
            total, change = self._reducer.finish(change=runtime.change_wanted())
            self._agree_on_settings()
        except GroupBroken as fault:
            runtime.recomputed += 1
            self._statistics.undo()
            runtime.broke(fault)
            return True
        runtime.phase("applying")
        self._statistics.settle(total)
        self._optimizer.step()
        self._settings.used()
        runtime.step = step
        runtime.applied(float(total.tail[1]), "")
        self._held = {lease: batch for lease, batch in self._held.items() if lease.step > step}
        self._restart_step()
        self.data_shard_service.moved(step, runtime.block)
        if change and step < self.data_shard_service.order.steps:
            runtime.reform()
        return True

    def _pass_over_old_epochs(self) -> None:
        """The loop of a worker that joined late has just seen its first epoch, which is new to nobody else.

        What it has done to the settings counts only if that epoch begins now.
        """
        begun = self._started().step
        if self.data_shard_service.order.span(begun).epoch == self.data_shard_service.get_current_epoch():
            self._settings.reset()

    def _agree_on_settings(self) -> None:
        """Everyone steps with the first rank's: the loop of a worker that has just joined may have got them wrong."""
        group = self._started().group
        own = torch.tensor(self._settings.now(), dtype=torch.float64)
        if group.size > 1 and len(own):
            every = own.new_empty(group.size * len(own))
            group.wait(group.all_gather(every, own))
            self._settings.use(every[: len(own)].tolist())

    def _end(self) -> None:
        """The program's loop is over."""
        runtime = self._started()
        left = self.data_shard_service.order.steps - runtime.step
        if left:
            raise ElasticError(
                "StoppedEarly",
                f"the program left its loop with {left} steps to go",
                hint="let the loop run until the loader ends; set num_epochs to train less",
            )
        runtime.finish()


def _cut(item: Any, size: int, records: int) -> Any:
    """Take a loader's filling off a batch again."""
    if records < size and isinstance(item, torch.Tensor) and item.dim() and item.shape[0] == size:
        return item[:records]
    return item


@contextmanager
def _no_steps(optimizer: Any) -> Iterator[None]:
    """Inside the program's function, `optimizer.step()` means: the gradients are there."""
    before = vars(optimizer).get("step")  # a schedule puts one of its own there
    optimizer.step = lambda *args, **kwargs: None
    try:
        yield
    finally:
        if before is None:
            del optimizer.step
        else:
            optimizer.step = before


class _OptimizerSettings:
    """An optimiser's learning rate and other numbers, which these programs change in their loop, epoch by epoch.

    They are handed over as the last step used them: what a loop has done to them since, the other worker's loop does
    too, when it comes to that step.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._used: list[dict[str, float]] = []

    def _places(self) -> list[tuple[dict[str, Any], str]]:
        return [(group, name) for group in self._optimizer.param_groups for name in sorted(_numbers(group))]

    def now(self) -> list[float]:
        return [group[name] for group, name in self._places()]

    def use(self, values: list[float]) -> None:
        for (group, name), value in zip(self._places(), values, strict=True):
            if group[name] != value:
                group[name] = value

    def used(self) -> None:
        self._used = [_numbers(group) for group in self._optimizer.param_groups]

    def reset(self) -> None:
        for group, used in zip(self._optimizer.param_groups, self._used, strict=True):
            group.update(used)

    def state_dict(self) -> dict[str, Any]:
        whole: dict[str, Any] = self._optimizer.state_dict()
        for group, used in zip(whole["param_groups"], self._used, strict=False):
            group.update(used)
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state_dict)
        self.used()


def _numbers(group: dict[str, Any]) -> dict[str, float]:
    return {
        name: value for name, value in group.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def create_elastic_controller(
    batch_size: int, num_epochs: int | None = None, dataset_size: int | None = None, shuffle: bool = False
) -> PyTorchAllReduceController:
    return PyTorchAllReduceController(RecordIndexService(batch_size, num_epochs, dataset_size, shuffle=shuffle))


def DistributedOptimizer(optimizer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802  # the name programs import
    """Gradients are averaged with or without this wrapper: it only adds the methods programs may call."""
    optimizer.set_backward_passes_per_step = lambda passes: None
    optimizer.synchronize = lambda: None
    optimizer.skip_synchronize = _nothing
    return optimizer


@contextmanager
def _nothing() -> Iterator[None]:
    yield
