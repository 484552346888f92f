"""Elastic training with Lightning.

job = elastic.join(seed=42)
trainer = Trainer(strategy=ElasticStrategy(job, micro_batches=4), max_epochs=3)
trainer.fit(module, loader)

The Trainer keeps its loop, its callbacks, loggers and checkpoints. A step has the records of one batch of the
`DataLoader`, for any number of workers, divided into micro-batches. All workers validate; only the first one logs and
saves. Micro-batches are loaded by the runtime, and `training_step` is called for each of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchyard.elastic.api import Job
from torchyard.elastic.checkpoint.manager import Checkpoints
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.hosted_loop import HostedLoop
from torchyard.elastic.worker.settings import TrainingSettings

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""Lightning is published under two names, whose classes are not those of each other."""


def _package() -> str:
    """Return the name under which the program uses Lightning: what it has imported, or else what is installed."""
    imported = [name for name in PACKAGES if name in sys.modules]
    installed = [name for name in PACKAGES if importlib.util.find_spec(name.partition(".")[0]) is not None]
    return next(iter(imported or installed), PACKAGES[0])


_LIGHTNING = _package()
pytorch: Any = importlib.import_module(_LIGHTNING)
ClosureResult: Any = importlib.import_module(f"{_LIGHTNING}.loops.optimization.automatic").ClosureResult
SingleDeviceStrategy: Any = importlib.import_module(f"{_LIGHTNING}.strategies").SingleDeviceStrategy
call: Any = importlib.import_module(f"{_LIGHTNING}.trainer.call")
rank_zero_only: Any = importlib.import_module(f"{_LIGHTNING}.utilities.rank_zero").rank_zero_only


class ElasticStrategy(SingleDeviceStrategy):  # type: ignore[misc]  # chosen when the program runs
    """The strategy of an elastic training.

    Args:
        job: the job.
        micro_batches: into how many parts a step is divided; the maximum number of workers in a world.
        mode: "strict" gives the same bits for every number of workers; "fast" overlaps reduction and backward.
        digest_every: compare the states of all workers every this many steps; 0 never does.
        checkpoints: where to save checkpoints of the runtime, beside those of Lightning; None saves none.
        snapshot_every: copy the state to shared memory every this many steps; 0 never does.
        device: the device of the model; that of the Trainer's accelerator if None.
    """

    strategy_name = "torchyard_elastic"

    def __init__(
        self,
        job: Job,
        *,
        micro_batches: int = 1,
        mode: str = "strict",
        digest_every: int = 50,
        checkpoints: Checkpoints | None = None,
        snapshot_every: int = 0,
        device: str | None = None,
    ) -> None:
        super().__init__(device=device or "cpu")
        self._chosen_device = device
        self._job = job
        self._settings: dict[str, Any] = {"micro_batches": micro_batches, "mode": mode, "digest_every": digest_every}
        self._settings |= {"checkpoints": checkpoints, "snapshot_every": snapshot_every}
        self._loop: HostedLoop | None = None
        self._callback: _StepCallback | None = None
        self._micro_batch: Any = None
        self._weight = 1.0

    @property
    def root_device(self) -> torch.device:
        """The device of the model."""
        if self._chosen_device is None and isinstance(self.accelerator, pytorch.accelerators.CUDAAccelerator):
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device(self._chosen_device or "cpu")

    @property
    def _trainer(self) -> Any:
        return self.lightning_module.trainer

    def process_dataloader(self, dataloader: Any) -> Any:
        """Begin the training with the loader of `fit`; those of validations stay as they are."""
        if not self._trainer.training:
            return dataloader
        tokens = _Tokens(self, dataloader)
        if self._loop is None:
            self._begin(dataloader, tokens)
        return tokens

    def _begin(self, dataloader: Any, tokens: _Tokens) -> None:
        trainer, module = self._trainer, self.lightning_module
        self._check(trainer, module)
        per_epoch = math.ceil(len(dataloader))
        epochs = trainer.max_epochs if trainer.max_epochs and trainer.max_epochs > 0 else None
        steps = trainer.max_steps if trainer.max_steps > 0 else None
        if epochs is None and steps is None:
            raise ElasticError("NoEnd", "the training has no end", hint="set max_epochs or max_steps of the Trainer")
        limit = min(value for value in (steps, epochs and epochs * per_epoch) if value)
        also = {f"scheduler.{index}": each.scheduler for index, each in enumerate(self.lr_scheduler_configs)}
        settings = TrainingSettings(
            data=dataloader,
            epochs=math.ceil(limit / per_epoch),
            also={**also, "callbacks": _CallbackStates(trainer)},
            **self._settings,
        )
        facts = {"gradient_clip_val": trainer.gradient_clip_val, "precision": str(trainer.precision)}
        loop = self._job.host(module, self.optimizers[0], settings, facts=facts, steps=limit)
        loop.runtime.on_enter(lambda: self._set_rank(loop.rank))
        self._loop = tokens.loop = loop
        self._counted = _Counters(trainer, per_epoch)
        self._callback = _StepCallback(loop)
        trainer.callbacks.insert(0, self._callback)
        loop.enter()

    def _check(self, trainer: Any, module: Any) -> None:
        refused = {
            "accumulate_grad_batches": (trainer.accumulate_grad_batches != 1, "use micro_batches instead"),
            "limit_train_batches": (trainer.limit_train_batches != 1.0, "use max_steps instead"),
            "overfit_batches": (bool(trainer.overfit_batches), "use a smaller dataset"),
        }
        for name, (present, hint) in refused.items():
            if present:
                raise ElasticError("TrainerArgument", f"the Trainer has {name}={getattr(trainer, name)}", hint=hint)
        if trainer.global_step:
            raise ElasticError(
                "TrainerStep",
                f"the Trainer is at step {trainer.global_step}, but this training begins with step 1",
                hint="call fit once, without ckpt_path; pass checkpoints= to the strategy, which then resumes",
            )
        if getattr(self.precision_plugin, "scaler", None) is not None:
            raise ElasticError(
                "TrainerArgument",
                f"the Trainer has precision={trainer.precision!r}, which scales the loss",
                hint="use bf16-mixed, or no mixed precision",
            )
        if not module.automatic_optimization or len(self.optimizers) != 1:
            raise ElasticError(
                "ManualOptimization",
                "the module has manual optimization or several optimizers",
                hint="use automatic optimization with one optimizer, or job.batches with a loop of your own",
            )

    def _set_rank(self, rank: int) -> None:
        """Only the first rank logs and saves."""
        self.global_rank = rank
        rank_zero_only.rank = rank

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the present micro-batch in place of what Lightning takes for its batch."""
        batch = self.batch_to_device(self.precision_plugin.convert_input(self._micro_batch))
        return super().training_step(batch, *args[1:], **kwargs)

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        """Compute and reduce a step, then let Lightning clip the gradient and step the optimizer."""
        loop = self._loop
        assert loop is not None
        self._counted.follow(loop.step)

        def backward(batch: Any, weight: float) -> torch.Tensor:
            self._micro_batch, self._weight = batch, weight
            loss: torch.Tensor = closure()
            return loss

        loss = loop.compute(backward)
        inner = _lightning_closure(closure)
        if inner is not None and inner._result is None:
            inner._result = ClosureResult(None)
        return super().optimizer_step(optimizer, lambda: torch.tensor(loss or 0.0), model, **kwargs)

    def backward(self, closure_loss: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Compute the gradients of a micro-batch, as its part of the step."""
        loss: torch.Tensor = super().backward(closure_loss * self._weight, *args, **kwargs)
        return loss

    def teardown(self) -> None:
        if self._loop is not None:
            self._loop.close()
            callbacks = self._trainer.callbacks
            callbacks[:] = [callback for callback in callbacks if callback is not self._callback]
        self._loop = self._callback = None
        super().teardown()


def _lightning_closure(closure: Any) -> Any:
    """Return the closure of Lightning's loop, which hooks may have wrapped."""
    while closure is not None and not hasattr(closure, "_result"):
        closure = getattr(closure, "func", None)
    return closure


class _Tokens:
    """What Lightning takes for its data loader: one entry for each step."""

    def __init__(self, strategy: ElasticStrategy, dataloader: Any) -> None:
        self.loop: HostedLoop | None = strategy._loop
        self.dataset = dataloader.dataset
        self._length = len(dataloader)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self.loop is not None
        return self.loop.epoch_tokens()


class _Counters:
    """The counters of Lightning's loops. A worker that received steps has not counted them.

    Args:
        trainer: the Trainer.
        per_epoch: the number of steps in an epoch.
    """

    def __init__(self, trainer: Any, per_epoch: int) -> None:
        self._fit_loop = trainer.fit_loop
        self._per_epoch = per_epoch

    def follow(self, step: int) -> None:
        """Set all counters as they are in the batch after a step."""
        epoch_loop = self._fit_loop.epoch_loop
        if epoch_loop.global_step == step:
            return
        epoch, within = divmod(step, self._per_epoch)
        _set(self._fit_loop.epoch_progress.current, begun=epoch + 1, done=epoch)
        _set(self._fit_loop.epoch_progress.total, begun=epoch + 1, done=epoch)
        _set(epoch_loop.batch_progress.current, begun=within + 1, done=within)
        _set(epoch_loop.batch_progress.total, begun=step + 1, done=step)
        optimizer = epoch_loop.automatic_optimization.optim_progress.optimizer
        for progress, count in ((optimizer.step, step), (optimizer.zero_grad, step)):
            _set(progress.total, begun=count + 1, done=count)
            _set(progress.current, begun=within + 1, done=within)
        _set(epoch_loop.scheduler_progress.total, begun=step, done=step)
        epoch_loop._batches_that_stepped = step


def _set(progress: Any, *, begun: int, done: int) -> None:
    for name, value in (("ready", begun), ("started", begun), ("processed", done), ("completed", done)):
        if hasattr(progress, name):
            setattr(progress, name, value)


class _CallbackStates:
    """The states of Lightning's callbacks, which a worker that joins later receives."""

    not_compared = True  # they contain times and the paths of this worker

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        states: dict[str, Any] = call._call_callbacks_state_dict(self._trainer)
        return states

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        call._call_callbacks_load_state_dict(self._trainer, {"callbacks": state_dict, "pytorch-lightning_version": ""})


class _StepCallback(pytorch.Callback):  # type: ignore[misc]  # chosen when the program runs
    """Completes a step before any other callback sees it."""

    def __init__(self, loop: HostedLoop) -> None:
        self._loop = loop

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self._loop.applied()
        if self._loop.ended and self._loop.step < trainer.estimated_stepping_batches:
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self._loop.finish()
