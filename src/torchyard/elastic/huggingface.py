"""Elastic training with `transformers.Trainer` and its subclasses, such as those of TRL.

job = elastic.join(seed=42)
trainer = Trainer(model, args, train_dataset=data, ...)
huggingface.attach(job, trainer)
trainer.train()

The Trainer keeps its loop, its callbacks, its logs and its checkpoints. A step has the records of
`per_device_train_batch_size` x `gradient_accumulation_steps`, for any number of workers, and each accumulation step is
a micro-batch. All workers evaluate; only the first one logs and saves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_utils import get_last_checkpoint

from torchyard.elastic.api import Job
from torchyard.elastic.checkpoint.manager import Checkpoints
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.hosted_loop import HostedLoop
from torchyard.elastic.worker.settings import TrainingSettings
from torchyard.elastic.world.runtime import RestoreSource
from torchyard.elastic.world.state import TrainingState

STATE_FIELDS = ("global_step", "epoch", "log_history", "best_metric", "best_global_step", "total_flos")
IDENTITY = ("lr_scheduler_type", "warmup_steps", "max_steps", "max_grad_norm", "bf16")
"""Arguments of the Trainer that decide the result, beside those of the optimizer."""


@dataclass(frozen=True, slots=True)
class ElasticOptions:
    """What `attach` adds to the arguments of a Trainer; see there."""

    micro_batches: int
    mode: str
    digest_every: int
    checkpoints: Checkpoints | None
    snapshot_every: int


def attach(
    job: Job,
    trainer: Any,
    *,
    micro_batches: int | None = None,
    mode: str = "strict",
    digest_every: int = 50,
    checkpoints: Checkpoints | None = None,
    snapshot_every: int = 0,
) -> None:
    """Make a Trainer elastic. Call it before `trainer.train()`.

    Args:
        job: the job.
        trainer: a `transformers.Trainer`.
        micro_batches: into how many parts a step is divided; `gradient_accumulation_steps` if None.
        mode: "strict" gives the same bits for every number of workers; "fast" overlaps reduction and backward.
        digest_every: compare the states of all workers every this many steps; 0 never does.
        checkpoints: where to save checkpoints of the runtime, beside those of the Trainer; None saves none.
        snapshot_every: copy the state to shared memory every this many steps; 0 never does.
    """
    _check_arguments(trainer)
    parts = micro_batches or trainer.args.gradient_accumulation_steps
    options = ElasticOptions(parts, mode, digest_every, checkpoints, snapshot_every)
    trainer.train = _ElasticTrain(job, trainer, options)


def _check_arguments(trainer: Any) -> None:
    args = trainer.args
    refused = {
        "fp16": (bool(args.fp16), "use bf16, or no mixed precision"),
        "deepspeed": (bool(args.deepspeed), "remove it: every worker needs the whole model"),
        "fsdp": (bool(args.fsdp), "remove it: every worker needs the whole model"),
        "dataloader_drop_last": (bool(args.dataloader_drop_last), "remove it: no record is dropped"),
        "auto_find_batch_size": (bool(args.auto_find_batch_size), "set per_device_train_batch_size"),
        "world_size": (args.world_size > 1, "start the program with torchyard.elastic run instead of torchrun"),
        "n_gpu": (args.n_gpu > 1, "make one GPU visible to each worker (CUDA_VISIBLE_DEVICES)"),
    }
    for name, (present, hint) in refused.items():
        if present:
            raise ElasticError("TrainerArgument", f"the Trainer has {name}={getattr(args, name)!r}", hint=hint)


class _ElasticTrain:
    """Replaces `trainer.train`."""

    def __init__(self, job: Job, trainer: Any, options: ElasticOptions) -> None:
        self._job = job
        self._trainer = trainer
        self._options = options
        self._train = trainer.train
        self._training_step = trainer.training_step
        self._get_loader = trainer.get_train_dataloader
        trainer.floating_point_ops = lambda inputs: 0  # a worker computes only a part of a step

    def __call__(self, resume_from_checkpoint: str | bool | None = None, **arguments: Any) -> Any:
        trainer, args = self._trainer, self._trainer.args
        accumulation = args.gradient_accumulation_steps
        progress = _Progress(trainer)
        loop = self._create_loop(progress, self._checkpoint(resume_from_checkpoint))
        first, last = _FirstCallback(loop, progress), _LastCallback(loop, progress)
        trainer.callback_handler.callbacks.insert(0, first)
        trainer.callback_handler.callbacks.append(last)
        trainer.training_step = lambda model, inputs, count=None: self._step(loop, progress, model)
        trainer.get_train_dataloader = lambda: self._tokens
        args.gradient_accumulation_steps = 1
        try:
            loop.enter()
            return self._train(**arguments)
        finally:
            args.gradient_accumulation_steps = accumulation
            del trainer.training_step, trainer.get_train_dataloader
            trainer.callback_handler.callbacks = [
                callback for callback in trainer.callback_handler.callbacks if callback not in (first, last)
            ]
            loop.close()

    def _create_loop(self, progress: _Progress, checkpoint: str | None) -> HostedLoop:
        trainer, args, options = self._trainer, self._trainer.args, self._options
        loader = self._get_loader()
        batch = args.train_batch_size * args.gradient_accumulation_steps
        records = len(loader.dataset)
        per_epoch = math.ceil(records / batch)
        steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * per_epoch)
        optimizer = trainer.create_optimizer()
        scheduler = trainer.create_scheduler(num_training_steps=steps)
        trainer._created_lr_scheduler = False  # otherwise `train` creates another one
        settings = TrainingSettings(
            data=loader.dataset,
            batch=batch,
            micro_batches=options.micro_batches,
            epochs=math.ceil(steps / per_epoch),
            mode=options.mode,
            sampler=getattr(loader.batch_sampler, "sampler", None),
            collate=loader.collate_fn,
            loaders=args.dataloader_num_workers,
            also={"scheduler": scheduler, "trainer": progress},
            digest_every=options.digest_every,
            checkpoints=options.checkpoints,
            snapshot_every=options.snapshot_every,
        )
        facts = {name: str(getattr(args, name, None)) for name in IDENTITY}
        loop = self._job.host(trainer.model, optimizer, settings, facts=facts, steps=steps)
        if checkpoint is not None:
            loop.runtime.restore_source = _TrainerCheckpoint(trainer, checkpoint, progress)
        loop.runtime.on_enter(lambda: _set_rank(trainer, loop.rank))
        self._tokens = _Tokens(loop, loader.dataset, per_epoch)
        return loop

    def _checkpoint(self, resume: str | bool | None) -> str | None:
        """Return the checkpoint of the Trainer to continue from."""
        if resume is True:
            resume = get_last_checkpoint(self._trainer.args.output_dir)
        own = "checkpoints" if self._options.checkpoints is not None else "snapshot_every"
        if resume and getattr(self._options, own):
            raise ElasticError(
                "TwoCheckpoints",
                f"both resume_from_checkpoint and {own} are set: only one can say where to continue",
                hint="remove one of them",
            )
        return str(resume) if resume else None

    def _step(self, loop: HostedLoop, progress: _Progress, model: Any) -> torch.Tensor:
        trainer = self._trainer
        progress.body_done = True

        def backward(batch: Any, weight: float) -> torch.Tensor:
            trainer.current_gradient_accumulation_steps = 1
            with _weighted(trainer.accelerator, weight):
                loss: torch.Tensor = self._training_step(model, batch, None)
            return loss

        loss = loop.compute(backward)
        return torch.tensor(loss or 0.0, device=trainer.args.device)


@contextmanager
def _weighted(accelerator: Any, weight: float) -> Iterator[None]:
    """Give the loss of a micro-batch its weight in the step."""
    backward, replaced = accelerator.backward, "backward" in vars(accelerator)
    accelerator.backward = lambda loss, **arguments: backward(loss * weight, **arguments)
    try:
        yield
    finally:
        if replaced:
            accelerator.backward = backward
        else:
            del accelerator.backward


def _set_rank(trainer: Any, rank: int) -> None:
    """Only the first rank logs and saves."""
    state = trainer.args.distributed_state
    state.process_index = state.local_process_index = rank
    trainer.state.is_world_process_zero = trainer.state.is_local_process_zero = rank == 0


class _Tokens:
    """What the Trainer takes for its data loader: one entry for each step."""

    def __init__(self, loop: HostedLoop, dataset: Any, length: int) -> None:
        self._loop = loop
        self.dataset = dataset
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._loop.epoch_tokens()


class _Progress:
    """The progress of the Trainer: its counters, logs and the state of its callbacks.

    Attributes:
        body_done: whether the callbacks of the last step have run.
    """

    not_compared = True  # logs contain durations

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._received: dict[str, Any] | None = None
        self.body_done = True

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        return {
            "state": {name: getattr(trainer.state, name, None) for name in STATE_FIELDS},
            "loss": float(getattr(trainer, "_tr_loss", 0.0)),
            "total_loss": float(getattr(trainer, "_total_loss_scalar", 0.0)),
            "last_logged": int(getattr(trainer, "_globalstep_last_logged", 0)),
            "body_done": self.body_done,
            "callbacks": {
                type(callback).__name__: dict(callback.state().get("attributes", {})) for callback in self._callbacks()
            },
        }

    def _callbacks(self) -> list[Any]:
        return [each for each in self._trainer.callback_handler.callbacks if isinstance(each, ExportableState)]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._received = state_dict
        self.apply()

    def apply(self) -> None:
        """Give the Trainer what was received; it resets its progress when its loop begins."""
        trainer, received = self._trainer, self._received
        if received is None:
            return
        for name, value in received["state"].items():
            setattr(trainer.state, name, value)
        trainer._tr_loss = torch.tensor(received["loss"], device=trainer.args.device)
        trainer._total_loss_scalar = received["total_loss"]
        trainer._globalstep_last_logged = received["last_logged"]
        self.body_done = received["body_done"]
        for callback in self._callbacks():
            for name, value in received["callbacks"].get(type(callback).__name__, {}).items():
                setattr(callback, name, value)


class _FirstCallback(TrainerCallback):  # type: ignore[misc]  # transformers may not be installed
    """Completes a step before any other callback sees it."""

    def __init__(self, loop: HostedLoop, progress: _Progress) -> None:
        self._loop = loop
        self._progress = progress

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._progress.apply()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._loop.received:
            self._progress.body_done = False
        self._loop.applied()
        state.epoch = self._loop.epoch

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._loop.finish()


class _LastCallback(TrainerCallback):  # type: ignore[misc]  # transformers may not be installed
    """Corrects what the other callbacks have asked the Trainer to do."""

    def __init__(self, loop: HostedLoop, progress: _Progress) -> None:
        self._loop = loop
        self._progress = progress

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._correct(control)
        if self._loop.ended:
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._correct(control)

    def _correct(self, control: Any) -> None:
        if self._loop.rank != 0:
            control.should_save = False
        if self._loop.received and self._progress.body_done:  # the received logs have this step already
            control.should_log = control.should_evaluate = control.should_save = False


class _TrainerCheckpoint(RestoreSource):
    """A checkpoint that the Trainer has saved."""

    def __init__(self, trainer: Any, path: str, progress: _Progress) -> None:
        self._trainer = trainer
        self._path = path
        self._progress = progress
        self._state = TrainerState.load_from_json(str(Path(path) / "trainer_state.json"))

    def newest(self) -> int:
        return int(self._state.global_step)

    def load(self, state: TrainingState) -> int:
        self._trainer._load_from_checkpoint(self._path)
        self._trainer._load_optimizer_and_scheduler(self._path)
        fields = {name: getattr(self._state, name, None) for name in STATE_FIELDS}
        step = self.newest()
        self._progress.load_state_dict(
            {"state": fields, "loss": 0.0, "total_loss": 0.0, "last_logged": step, "body_done": True, "callbacks": {}}
        )
        return step
