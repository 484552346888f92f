"""The public API: `join` a job, then `train`. Without a coordinator in the environment the same program trains alone.

job = elastic.join(seed=7)
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for step in job.train(model, optimizer, loss=loss_of, data=dataset, batch=256, micro_batches=4, epochs=3):
    print(step.number, step.loss)
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from torchyard.elastic.checkpoint.manager import Checkpoints
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.identity import ResumePolicy
from torchyard.elastic.sidecar import start_sidecar
from torchyard.elastic.worker.epoch_loop import EpochBatches, EpochLoop
from torchyard.elastic.worker.hosted_loop import HostedLoop
from torchyard.elastic.worker.leaving import leave_on_sigterm
from torchyard.elastic.worker.own_loop import OwnLoop
from torchyard.elastic.worker.seeding import seed_generators
from torchyard.elastic.worker.settings import TrainingSettings
from torchyard.elastic.worker.trainer import Step
from torchyard.elastic.worker.training import JobContext, Training, create_training
from torchyard.elastic.worker.training_end import close_after, finish_left_loop, require_trainings
from torchyard.elastic.world.runtime import WorkerConfig, WorkerRuntime
from torchyard.elastic.world.state import Stateful

_trainings_begun: list[int] = []
"""The numbers of the trainings that this process has begun: a process takes part in one job."""


def join(
    *,
    seed: int = 0,
    threads: int | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: str | None = None,
    trainings: int = 1,
) -> Job:
    """Prepare this process for a job.

    Seeds torch, NumPy and `random`, so that every worker creates the same model and splits its data alike. Sets the
    number of threads of a kernel, because the sums of a kernel depend on it: in strict mode it must be the same on
    every worker.

    Args:
        seed: the seed of the model's initialization, of the shuffling, and of dropout and augmentation.
        threads: the number of threads that a CPU kernel may use; OMP_NUM_THREADS or 1 if None.
        settings: further values that decide the result, for example `vars(args)`: a checkpoint of a training with other
            values is refused.
        resume: "auto" continues an earlier run of the same training and refuses that of another one, "fresh" starts
            again and sets earlier checkpoints aside, "anyway" continues with changed settings. None is what the `run`
            command was told, or "auto".
        trainings: how often the program calls `train` or `batches`; the job ends with the last of them.

    Returns:
        the job; call its `train` next.
    """
    if trainings < 1:
        raise ElasticError("BadTrainings", f"trainings is {trainings}", hint="use 1 or more")
    torch.manual_seed(seed)  # all devices
    seed_generators(seed & (1 << 64) - 1, torch.device("cpu"))
    torch.set_num_threads(threads or int(os.environ.get("OMP_NUM_THREADS", "1")))
    start_sidecar()
    config = WorkerConfig.from_environment()
    if config is not None and trainings > 1:
        require_trainings(trainings, _trainings_begun)
    return Job(JobContext(seed, config, settings or {}, ResumePolicy.from_environment(resume), trainings))


class Job:
    """A training job, as one worker sees it. `join` creates it.

    Args:
        context: how this process takes part in it.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._training: Training | None = None
        self._steps: weakref.ref[Generator[Any, None, None]] | None = None
        self._iterated = True
        self._loop: OwnLoop | None = None

    @property
    def seed(self) -> int:
        return self._context.seed

    @property
    def alone(self) -> bool:
        """Whether this process trains without a coordinator."""
        return self._context.config is None

    @property
    def digest(self) -> str:
        """The sha256 of all trained state. In strict mode it is the same after any history of failures."""
        return self._started().state.digest()

    @property
    def recomputed_steps(self) -> int:
        """How many steps this worker computed again because the world changed under them."""
        return self._started().recomputed

    def _started(self) -> WorkerRuntime:
        if self._training is None:
            raise ElasticError("NotStarted", "the job has not started to train", hint="call train first")
        return self._training.trainer.runtime

    def train(  # noqa: PLR0913  # all settings of a training, as keyword arguments
        self,
        model: torch.nn.Module,
        optimizer: Any,
        *,
        loss: Callable[[Any], torch.Tensor],
        data: Any,
        batch: int | None = None,
        micro_batches: int = 1,
        epochs: int = 1,
        mode: str = "strict",
        backend: str = "gloo",
        shuffle: bool = True,
        sampler: Any = None,
        clip_norm: float | None = None,
        scheduler: Any = None,
        scaler: Any = None,
        also: Mapping[str, Stateful] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        loaders: int | None = None,
        prefetch: int = 2,
        digest_every: int = 50,
        checkpoints: Checkpoints | None = None,
        snapshot_every: int = 0,
        unchecked: Collection[str] = (),
    ) -> Iterator[Step]:
        """Train, and yield every step after it was applied.

        The body of the loop runs on every worker, but a worker that receives a step from another does not run the body
        for it. So everything that the body changes must be part of the state (see `also`).

        Args:
            model: the model itself, without DistributedDataParallel.
            optimizer: a torch optimizer over the model's parameters, or a list or a dict of several.
            loss: gets one collated micro-batch and returns its mean loss.
            data: a map-style dataset, a `DataLoader` over one, or `Streams`.
            batch: the number of records in a step, for any number of workers; that of the `DataLoader` if None.
            micro_batches: into how many parts a step is divided; the maximum number of workers in a world.
            epochs: how often the dataset is read.
            mode: "strict" gives the same bits for every number of workers; "fast" overlaps reduction and backward.
            backend: "gloo" or "nccl", which carries the gradients.
            shuffle: whether each epoch reads the records in a new random order; `Streams` are never shuffled.
            sampler: a torch sampler that gives the order of an epoch; `shuffle` then has no effect.
            clip_norm: the maximum norm of the gradients; None does not clip.
            scheduler: a learning rate scheduler that advances after every step, or a list or a dict of several;
                `ReduceLROnPlateau` gets the loss of the step.
            scaler: a `torch.amp.GradScaler`.
            also: further objects with a state_dict that belong to the state, by name.
            collate: turns a list of records into a batch; torch's default if None.
            loaders: how many processes load records; 0 loads in the training thread; None is 0, or the number of
                workers of the `DataLoader`.
            prefetch: how many steps the loaders load ahead.
            digest_every: compare the states of all workers every this many steps; 0 never does.
            checkpoints: where and how often to save checkpoints; None saves none.
            snapshot_every: copy the state to shared memory every this many steps; 0 never does.
            unchecked: names of variables of the program that may change while training, because they do not influence
                the result.

        Returns:
            an iterator over the applied steps.

        Raises:
            ElasticError: an argument is not valid, or the coordinator refused this worker.
            JobFailed: the job has failed; raised from the iterator.
        """
        settings = TrainingSettings(
            loss=loss,
            data=data,
            batch=batch,
            micro_batches=micro_batches,
            epochs=epochs,
            mode=mode,
            backend=backend,
            shuffle=shuffle,
            sampler=sampler,
            clip_norm=clip_norm,
            scheduler=scheduler,
            scaler=scaler,
            also=also,
            collate=collate,
            loaders=loaders,
            prefetch=prefetch,
            digest_every=digest_every,
            checkpoints=checkpoints,
            snapshot_every=snapshot_every,
            unchecked=unchecked,
        )
        training = self._begin(model, optimizer, settings)
        return self._remember(close_after(training, self._run(training, training.trainer.steps)))

    def batches(  # noqa: PLR0913  # all settings of a training, as keyword arguments
        self,
        model: torch.nn.Module,
        optimizer: Any,
        *,
        data: Any,
        batch: int | None = None,
        micro_batches: int = 1,
        epochs: int = 1,
        mode: str = "strict",
        backend: str = "gloo",
        shuffle: bool = True,
        sampler: Any = None,
        clip_norm: float | None = None,
        also: Mapping[str, Stateful] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        loaders: int | None = None,
        prefetch: int = 2,
        digest_every: int = 50,
        checkpoints: Checkpoints | None = None,
        snapshot_every: int = 0,
        unchecked: Collection[str] = (),
    ) -> Iterator[Any]:
        """Yield micro-batches to a program that keeps its own loop, with `step` in its body.

        The arguments are those of `train`. A scheduler that the program advances must be in `also`.

        Returns:
            an iterator over the micro-batches of this worker, of all epochs.
        """
        settings = TrainingSettings(
            data=data,
            batch=batch,
            micro_batches=micro_batches,
            epochs=epochs,
            mode=mode,
            backend=backend,
            shuffle=shuffle,
            sampler=sampler,
            clip_norm=clip_norm,
            also=also,
            collate=collate,
            loaders=loaders,
            prefetch=prefetch,
            digest_every=digest_every,
            checkpoints=checkpoints,
            snapshot_every=snapshot_every,
            unchecked=unchecked,
        )
        training = self._begin(model, optimizer, settings)
        loop = self._own_loop(training, model, optimizer, settings)
        return self._remember(close_after(training, self._run(training, loop.batches)))

    def epochs(  # noqa: PLR0913  # all settings of a training, as keyword arguments
        self,
        model: torch.nn.Module,
        optimizer: Any,
        *,
        data: Any,
        batch: int | None = None,
        micro_batches: int = 1,
        epochs: int = 1,
        mode: str = "strict",
        backend: str = "gloo",
        shuffle: bool = True,
        sampler: Any = None,
        clip_norm: float | None = None,
        also: Mapping[str, Stateful] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        loaders: int | None = None,
        prefetch: int = 2,
        digest_every: int = 50,
        checkpoints: Checkpoints | None = None,
        snapshot_every: int = 0,
        unchecked: Collection[str] = (),
    ) -> Iterator[tuple[int, EpochBatches]]:
        """Yield epochs to a program that keeps its own loops: one over epochs, and in it one over batches.

        The arguments are those of `train`. A scheduler that the program advances must be in `also`. What follows the
        inner loop, for example `scheduler.step()` and an evaluation, runs once for every epoch.

        Returns:
            an iterator over the numbers of the epochs, from 0, and the batches of each: the micro-batches of this
            worker, in place of the program's loader.
        """
        settings = TrainingSettings(
            data=data,
            batch=batch,
            micro_batches=micro_batches,
            epochs=epochs,
            mode=mode,
            backend=backend,
            shuffle=shuffle,
            sampler=sampler,
            clip_norm=clip_norm,
            also=also,
            collate=collate,
            loaders=loaders,
            prefetch=prefetch,
            digest_every=digest_every,
            checkpoints=checkpoints,
            snapshot_every=snapshot_every,
            unchecked=unchecked,
        )
        training = self._begin(model, optimizer, settings)
        loop = self._own_loop(training, model, optimizer, settings)
        steps = EpochLoop(training.trainer, loop, getattr(data, "dataset", data))
        return self._remember(close_after(training, self._run(training, steps.epochs)))

    def _own_loop(
        self, training: Training, model: torch.nn.Module, optimizer: Any, settings: TrainingSettings
    ) -> OwnLoop:
        device = getattr(settings.data, "device", None)  # of a loader of Accelerate
        self._loop = OwnLoop(
            training.trainer,
            model,
            optimizer,
            training.buffers,
            also=settings.also or {},
            device=device if isinstance(device, torch.device) else None,
        )
        return self._loop

    def host(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        settings: TrainingSettings,
        *,
        facts: Mapping[str, Any],
        steps: int | None = None,
    ) -> HostedLoop:
        """Begin a training whose loop belongs to a framework; see `huggingface` and `lightning`.

        Args:
            model: the model itself.
            optimizer: its optimizer, or several.
            settings: the settings of the training.
            facts: settings of the framework that are part of the training's identity.
            steps: the last step, if the framework ends before the last epoch does.
        """
        training = self._begin(model, optimizer, settings, facts)
        return HostedLoop(training, self._context.config, model, steps=steps)

    @contextmanager
    def step(self) -> Iterator[Job]:
        """Compute one micro-batch of `batches` or `epochs` in a block: loss, backward, `optimizer.step()`.

        What follows `optimizer.step()` in the block runs once for every applied step.
        """
        if self._loop is None:
            raise ElasticError(
                "NotStarted", "job.step() needs job.batches(...)", hint="iterate over job.batches or job.epochs first"
            )
        with self._loop.step():
            yield self

    @property
    def applied(self) -> Step | None:
        """The step that `optimizer.step()` in a block of `step` has just applied; None before that."""
        return self._loop.applied if self._loop is not None else None

    def _begin(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        settings: TrainingSettings,
        facts: Mapping[str, Any] | None = None,
    ) -> Training:
        """Begin the next training of the program."""
        context = self._context
        number = len(_trainings_begun) + 1
        if number > context.trainings and context.config is not None:
            raise ElasticError(
                "SecondTraining",
                f"this is training {number} of the program, but the job ends with training {context.trainings}",
                hint=f"declare the trainings: elastic.join(trainings={number})",
            )
        if self._training is not None:
            steps = self._steps() if self._steps is not None else None
            finish_left_loop(self._training, steps, iterated=self._iterated)
        _trainings_begun.append(number)
        context = replace(context, training=number, settings=dict(context.settings) | dict(facts or {}))
        self._training = create_training(context, model, optimizer, settings)
        return self._training

    def _remember(self, steps: Generator[Any, None, None]) -> Iterator[Any]:
        """Refer to the steps weakly: they end as soon as the program leaves its loop."""
        self._steps, self._iterated = weakref.ref(steps), False
        return steps

    def _run(self, training: Training, steps: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        self._iterated = True
        runtime, config = training.trainer.runtime, self._context.config
        runtime.start(config)
        if config is not None:
            leave_on_sigterm(runtime)
        yield from steps()
