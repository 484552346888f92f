"""Creates everything that one training consists of, from the settings that a program passes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from torchyard.elastic.checkpoint.manager import CheckpointManager
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.identity import ResumePolicy
from torchyard.elastic.reduce.buffers import MutableBuffers
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.worker.data_check import DataCheck, ProgramRaised
from torchyard.elastic.worker.data_source import DataSource, read_data
from torchyard.elastic.worker.fingerprint import apply_changes, describe_training
from torchyard.elastic.worker.freed_memory import keep_freed_memory
from torchyard.elastic.worker.loader import MicroBatchLoader
from torchyard.elastic.worker.loop_body import LoopBody
from torchyard.elastic.worker.program_state import ProgramState
from torchyard.elastic.worker.settings import MODES, TrainingSettings
from torchyard.elastic.worker.startup_check import (
    DryRun,
    check_dataset,
    check_model,
    check_optimizers,
    check_schedulers,
)
from torchyard.elastic.worker.streams import Streams
from torchyard.elastic.worker.trainer import Trainer
from torchyard.elastic.worker.unchanged import UnchangedProgram
from torchyard.elastic.worker.update import OptimizerUpdate, named
from torchyard.elastic.world.runtime import ALONE, WorkerConfig, WorkerRuntime
from torchyard.elastic.world.state import TrainingState


@dataclass(frozen=True, slots=True)
class JobContext:
    """How this process takes part in its job.

    Attributes:
        seed: the seed of the job.
        config: how to reach the coordinator; None trains alone.
        settings: values of the program that are part of the training's identity.
        resume: whether to continue from what an earlier run has left.
        trainings: how many trainings the program has.
        training: the number of the present one, from 1.
    """

    seed: int = 0
    config: WorkerConfig | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    resume: ResumePolicy = field(default_factory=ResumePolicy)
    trainings: int = 1
    training: int = 1

    @property
    def position(self) -> dict[str, int]:
        """Which training of the program this is; nothing if it is the only one."""
        return {"training": self.training, "trainings": self.trainings} if self.trainings > 1 else {}

    @property
    def is_last(self) -> bool:
        return self.training >= self.trainings


@dataclass(frozen=True, slots=True)
class Training:
    """A training that is ready to start.

    Attributes:
        trainer: its loop.
        buffers: the buffers that a step averages.
        manager: its snapshots and checkpoints; None for neither.
        close: releases all resources.
        number: its number in the program, from 1.
        at_exit: what finishes it at the exit of the program, if the program has left its loop early.
    """

    trainer: Trainer
    buffers: MutableBuffers
    manager: CheckpointManager | None
    close: Callable[[], None]
    number: int = 1
    at_exit: list[Callable[[], None]] = field(default_factory=list)


def create_training(
    context: JobContext, model: torch.nn.Module, optimizer: Any, settings: TrainingSettings
) -> Training:
    """Check a training, and create it.

    Args:
        context: how this process takes part in its job.
        model: the model itself.
        optimizer: a torch optimizer, or a list or a dict of several.
        settings: the other settings.
    """
    check_model(model)
    optimizers, schedulers = named(optimizer, "optimizer"), named(settings.scheduler, "scheduler")
    also = dict(settings.also or {})
    parts = {"model": model, **optimizers, **schedulers, **also}
    if settings.scaler is not None:
        parts["scaler"] = settings.scaler
    state = TrainingState(parts)
    check_optimizers(model, optimizers)
    check_schedulers(optimizers.values(), [*schedulers.values(), *also.values()])
    settings.check_mode()
    if settings.strict:
        require_deterministic_kernels()
    source = _read_source(context, settings)
    sampler = create_sampler(source, settings.micro_batches, epochs=settings.epochs, seed=context.seed)
    loader = MicroBatchLoader(sampler, source, ahead=settings.prefetch)
    check_dataset(source, model)
    variables = _program_state(settings, model, source, parts)
    if settings.loss is not None:
        data = DataCheck(loader, strict=settings.strict)
        buffers = DryRun(model, sampler, data, loss=settings.loss, strict=settings.strict, program=variables).run()
    else:
        buffers = MutableBuffers.of_norm_layers(model)
        data = DataCheck(loader, strict=settings.strict, variables=variables)
        with suppress(ProgramRaised):  # the first step raises it again
            data.run()
    reducer = MODES[settings.mode](model, settings.micro_batches, buffers)
    settings.check_backend(reducer.layout.device)
    keep_freed_memory()
    facts: dict[str, Any] = {"mode": settings.mode, "clip_norm": settings.clip_norm, **context.position}
    facts |= source.facts | ({"threads": torch.get_num_threads()} if settings.strict else {})
    identity = describe_training(
        model, optimizers, schedulers, strict=settings.strict, settings=dict(context.settings) | facts
    )
    manager = _create_manager(
        context,
        settings,
        sampler,
        identity,
        on_changed=lambda saved, keys: apply_changes(saved, identity, optimizers | schedulers, keys),
    )
    runtime = WorkerRuntime(
        state,
        sampler,
        config={
            "sampler": asdict(sampler),
            "backend": settings.backend,
            "digest_every": settings.digest_every,
            "first records": data.digest,
            **identity,
        },
        restore_source=manager,
        nccl=settings.backend == "nccl",
        resume=context.resume.policy,
    )
    trainer = Trainer(
        runtime,
        loader,
        reducer,
        loss=settings.loss or _no_loss,
        update=OptimizerUpdate(
            tuple(optimizers.values()),
            reducer.layout.parameters,
            settings.clip_norm,
            settings.scaler,
            tuple(schedulers.values()),
        ),
        program=UnchangedProgram(
            model,
            optimizers.values(),
            parts,
            variables if settings.loss is not None else None,
            LoopBody(model, optimizers.values(), parts, settings),
        ),
        digest_every=settings.digest_every,
        checkpoint_manager=manager,
    )

    def close() -> None:
        loader.close()
        if manager is not None:
            manager.close()
        runtime.close()

    return Training(trainer, buffers, manager, close, context.training)


def _read_source(context: JobContext, settings: TrainingSettings) -> DataSource:
    return read_data(
        settings.data,
        batch=settings.batch,
        shuffle=settings.shuffle and not isinstance(settings.data, Streams),  # streams are read in sequence
        sampler=settings.sampler,
        collate=settings.collate,
        loaders=settings.loaders,
        seed=context.seed,
    )


def _program_state(
    settings: TrainingSettings, model: torch.nn.Module, source: DataSource, parts: Mapping[str, Any]
) -> ProgramState:
    """Return the variables that a training uses; objects of the state are none.

    In a loop of the program's own there is no loss function: they are then those of the dataset.
    """
    inside: list[Any] = list(model.parameters())
    for name, part in parts.items():
        if name != "model":
            inside += [part, *getattr(part, "__dict__", {}).values()]
    roots: dict[str, Any] = {"loss": settings.loss, "model": model} if settings.loss is not None else {}
    roots |= {"dataset": source.dataset, "collate": source.collate}
    return ProgramState(roots, inside=inside, unchecked=settings.unchecked)


def _create_manager(
    context: JobContext,
    settings: TrainingSettings,
    sampler: StepSampler,
    identity: dict[str, Any],
    *,
    on_changed: Callable[[dict[str, Any], list[str]], list[str]],
) -> CheckpointManager | None:
    if not settings.snapshot_every and settings.checkpoints is None and (context.is_last or context.config is None):
        return None
    config = context.config
    job, name = (config.job, config.name) if config else (ALONE, ALONE)
    # Staged state belongs to the worker's index on its machine: a replacement with the same index reuses it.
    name = os.environ.get("TORCHYARD_ELASTIC_PLACE", name)
    checkpoints = settings.checkpoints
    if context.trainings > 1:
        name = f"{name}.training-{context.training}"
        checkpoints = checkpoints.of_training(context.training) if checkpoints is not None else None
    shared = os.environ.get("TORCHYARD_ELASTIC_MEMORY")
    return CheckpointManager(
        sampler,
        job=job,
        name=name,
        memory=Path(shared or mkdtemp(prefix="torchyard-elastic-")),
        snapshot_every=settings.snapshot_every,
        checkpoints=checkpoints,
        token=config.token if config else "",
        identity=identity,
        resume=context.resume,
        on_changed=on_changed,
        remove_memory=not shared,
        stage_last=not context.is_last,
    )


def _no_loss(batch: Any) -> torch.Tensor:
    raise ElasticError("NoLoss", "this training has no loss function", hint="pass loss= to train")


def require_deterministic_kernels() -> None:
    """Make torch raise at any kernel that does not always give the same bits."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with this setting
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def create_sampler(source: DataSource, micro_batches: int, *, epochs: int, seed: int) -> StepSampler:
    """Return the sampler of a source, or raise if its batch does not divide into the micro-batches."""
    batch = source.batch
    if micro_batches < 1 or batch < 1 or batch % micro_batches:
        raise ElasticError(
            "BadBatch",
            f"a batch of {batch} does not divide into {micro_batches} micro-batches",
            hint=f"choose a batch that is a multiple of {max(1, micro_batches)}",
        )
    return StepSampler(source.records, batch // micro_batches, micro_batches, epochs, seed, source.shuffle)
