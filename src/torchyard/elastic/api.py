"""The public API: `join` a job, then `train`. Without a coordinator in the environment the same program trains alone.

job = elastic.join(seed=7)
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for step in job.train(model, optimizer, loss=loss_of, data=dataset, batch=256, micro_batches=4, epochs=3):
    print(step.number, step.loss)
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from torchyard.elastic.checkpoint.manager import CheckpointManager, Checkpoints
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.identity import ResumePolicy
from torchyard.elastic.reduce.buffers import MutableBuffers
from torchyard.elastic.reduce.fast import FastReducer
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.sidecar import start_sidecar
from torchyard.elastic.worker.data_source import DataSource, read_data
from torchyard.elastic.worker.fingerprint import apply_changes, describe_training
from torchyard.elastic.worker.loader import MicroBatchLoader
from torchyard.elastic.worker.own_loop import OwnLoop
from torchyard.elastic.worker.startup_check import DryRun, check_model, check_optimizers, check_schedulers
from torchyard.elastic.worker.streams import Streams
from torchyard.elastic.worker.trainer import Step, Trainer, close_after
from torchyard.elastic.worker.unchanged import UnchangedProgram
from torchyard.elastic.worker.update import OptimizerUpdate, named
from torchyard.elastic.world.runtime import ALONE, WorkerConfig, WorkerRuntime
from torchyard.elastic.world.state import Stateful, TrainingState

MODES: dict[str, type[StrictReducer] | type[FastReducer]] = {"strict": StrictReducer, "fast": FastReducer}


BACKENDS = ("gloo", "nccl")
"""What carries gradients. NCCL needs a GPU for each worker; with gloo several workers may share one."""


_jobs_trained: set[str] = set()


def join(
    *,
    seed: int = 0,
    threads: int | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: str | None = None,
) -> Job:
    """Prepare this process for a job.

    Seeds torch, so that every worker creates the same model. Sets the number of threads of a kernel, because the sums
    of a kernel depend on it: in strict mode it must be the same on every worker.

    Args:
        seed: the seed of the model's initialization, of the shuffling, and of dropout and augmentation.
        threads: the number of threads that a CPU kernel may use; OMP_NUM_THREADS or 1 if None.
        settings: further values that decide the result, for example `vars(args)`: a checkpoint of a training with other
            values is refused.
        resume: "auto" continues an earlier run of the same training and refuses that of another one, "fresh" starts
            again and sets earlier checkpoints aside, "anyway" continues with changed settings. None is what the `run`
            command was told, or "auto".

    Returns:
        the job; call its `train` next.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(threads or int(os.environ.get("OMP_NUM_THREADS", "1")))
    start_sidecar()
    return Job(seed, WorkerConfig.from_environment(), settings or {}, ResumePolicy.from_environment(resume))


class Job:
    """A training job, as one worker sees it. `join` creates it.

    Args:
        seed: the seed of the job.
        config: how to reach the coordinator; None trains alone.
        settings: values of the program that are part of the training's identity.
        resume: whether to continue from what an earlier run has left.
    """

    def __init__(
        self,
        seed: int,
        config: WorkerConfig | None,
        settings: Mapping[str, Any] | None = None,
        resume: ResumePolicy | None = None,
    ) -> None:
        self.seed = seed
        self._config = config
        self._settings = dict(settings or {})
        self._resume = resume or ResumePolicy()
        self._runtime: WorkerRuntime | None = None
        self._loop: OwnLoop | None = None

    @property
    def alone(self) -> bool:
        """Whether this process trains without a coordinator."""
        return self._config is None

    @property
    def digest(self) -> str:
        """The sha256 of all trained state. In strict mode it is the same after any history of failures."""
        return self._started().state.digest()

    @property
    def recomputed_steps(self) -> int:
        """How many steps this worker computed again because the world changed under them."""
        return self._started().recomputed

    def _started(self) -> WorkerRuntime:
        if self._runtime is None:
            raise ElasticError("NotStarted", "the job has not started to train", hint="call train first")
        return self._runtime

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

        Returns:
            an iterator over the applied steps.

        Raises:
            ElasticError: an argument is not valid, or the coordinator refused this worker.
            JobFailed: the job has failed; raised from the iterator.
        """
        trainer, _, close = self._create_trainer(
            model,
            optimizer,
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
        )
        return close_after(trainer, self._run(trainer, trainer.steps), close)

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
    ) -> Iterator[Any]:
        """Yield micro-batches to a program that keeps its own loop, with `step` in its body.

        The arguments are those of `train`. A scheduler that the program advances must be in `also`.

        Returns:
            an iterator over the micro-batches of this worker, of all epochs.
        """
        trainer, buffers, close = self._create_trainer(
            model,
            optimizer,
            loss=None,
            data=data,
            batch=batch,
            micro_batches=micro_batches,
            epochs=epochs,
            mode=mode,
            backend=backend,
            shuffle=shuffle,
            sampler=sampler,
            clip_norm=clip_norm,
            scheduler=None,
            scaler=None,
            also=also,
            collate=collate,
            loaders=loaders,
            prefetch=prefetch,
            digest_every=digest_every,
            checkpoints=checkpoints,
            snapshot_every=snapshot_every,
        )
        loop = self._loop = OwnLoop(trainer, model, optimizer, buffers)
        return close_after(trainer, self._run(trainer, loop.batches), close)

    @contextmanager
    def step(self) -> Iterator[Job]:
        """Compute one micro-batch of `batches` in a block: loss, backward, `optimizer.step()`.

        What follows `optimizer.step()` in the block runs once for every applied step.
        """
        if self._loop is None:
            raise ElasticError("NotStarted", "job.step() needs job.batches(...)", hint="iterate over job.batches first")
        with self._loop.step():
            yield self

    @property
    def applied(self) -> Step | None:
        """The step that `optimizer.step()` in a block of `step` has just applied; None before that."""
        return self._loop.applied if self._loop is not None else None

    def _create_trainer(  # noqa: PLR0913  # all settings of a training, as keyword arguments
        self,
        model: torch.nn.Module,
        optimizer: Any,
        *,
        loss: Callable[[Any], torch.Tensor] | None,
        data: Any,
        batch: int | None,
        micro_batches: int,
        epochs: int,
        mode: str,
        backend: str,
        shuffle: bool,
        sampler: Any,
        clip_norm: float | None,
        scheduler: Any,
        scaler: Any,
        also: Mapping[str, Stateful] | None,
        collate: Callable[[list[Any]], Any] | None,
        loaders: int | None,
        prefetch: int,
        digest_every: int,
        checkpoints: Checkpoints | None,
        snapshot_every: int,
    ) -> tuple[Trainer, MutableBuffers, Callable[[], None]]:
        self._check_first_training()
        check_model(model)
        optimizers, schedulers = named(optimizer, "optimizer"), named(scheduler, "scheduler")
        parts = {"model": model, **optimizers, **schedulers} | ({"scaler": scaler} if scaler is not None else {})
        state = TrainingState(parts | dict(also or {}))
        check_optimizers(model, optimizers)
        check_schedulers(optimizers.values(), [*schedulers.values(), *(also or {}).values()])
        if mode not in MODES:
            raise ElasticError("BadMode", f"mode is {mode!r}", hint=f"choose one of {', '.join(MODES)}")
        if mode == "strict":
            require_deterministic_kernels()
        shuffle = shuffle and not isinstance(data, Streams)  # streams are read in sequence
        source = read_data(
            data, batch=batch, shuffle=shuffle, sampler=sampler, collate=collate, loaders=loaders, seed=self.seed
        )
        order = _create_sampler(source, micro_batches, epochs=epochs, seed=self.seed)
        loader = MicroBatchLoader(order, source, ahead=prefetch)
        buffers = MutableBuffers.of_norm_layers(model)
        if loss is not None:
            buffers = DryRun(model, order, loader, loss=loss, strict=mode == "strict").run()
        reducer = MODES[mode](model, micro_batches, buffers)
        _check_backend(backend, reducer.layout.device)
        strict = mode == "strict"
        facts = {"mode": mode, "clip_norm": clip_norm} | ({"threads": torch.get_num_threads()} if strict else {})
        identity = describe_training(model, optimizers, schedulers, strict=strict, settings=self._settings | facts)
        config = {"sampler": asdict(order), "backend": backend, "digest_every": digest_every, **identity}
        manager = self._create_checkpoint_manager(
            order,
            snapshot_every=snapshot_every,
            checkpoints=checkpoints,
            identity=identity,
            on_changed=lambda saved, keys: apply_changes(saved, identity, optimizers | schedulers, keys),
        )
        runtime = self._runtime = WorkerRuntime(
            state,
            order,
            config=config,
            restore_source=manager,
            nccl=backend == "nccl",
            resume=self._resume.policy,
        )
        update = OptimizerUpdate(
            tuple(optimizers.values()), reducer.layout.parameters, clip_norm, scaler, tuple(schedulers.values())
        )
        trainer = Trainer(
            runtime,
            loader,
            reducer,
            loss=loss or _no_loss,
            update=update,
            program=UnchangedProgram(model, optimizers.values(), parts | dict(also or {})),
            digest_every=digest_every,
            checkpoint_manager=manager,
        )

        def close() -> None:
            loader.close()
            if manager is not None:
                manager.close()
            runtime.close()

        return trainer, buffers, close

    def _check_first_training(self) -> None:
        """A job has one training: its coordinator ends it with the last step."""
        if self._config is None:
            return
        if _jobs_trained:
            raise ElasticError(
                "SecondTraining",
                "train was called before in this program: the job ended with that training",
                hint="train everything in one call; or make each phase a job of its own, and load the model of the "
                "phase before from its checkpoint",
            )
        _jobs_trained.add(self._config.job)

    def _create_checkpoint_manager(
        self,
        sampler: StepSampler,
        *,
        snapshot_every: int,
        checkpoints: Checkpoints | None,
        identity: dict[str, Any],
        on_changed: Callable[[dict[str, Any], list[str]], list[str]],
    ) -> CheckpointManager | None:
        if not snapshot_every and checkpoints is None:
            return None
        job, name = (self._config.job, self._config.name) if self._config else (ALONE, ALONE)
        # Staged state belongs to the worker's index on its machine: a replacement with the same index reuses it.
        name = os.environ.get("TORCHYARD_ELASTIC_PLACE", name)
        shared = os.environ.get("TORCHYARD_ELASTIC_MEMORY")
        memory = Path(shared or mkdtemp(prefix="torchyard-elastic-"))
        return CheckpointManager(
            sampler,
            job=job,
            name=name,
            memory=memory,
            snapshot_every=snapshot_every,
            checkpoints=checkpoints,
            token=self._config.token if self._config else "",
            identity=identity,
            resume=self._resume,
            on_changed=on_changed,
            remove_memory=not shared,
        )

    def _run(self, trainer: Trainer, steps: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        runtime = trainer.runtime
        runtime.start(self._config)
        if self._config is not None:
            leave_on_sigterm(runtime)
        yield from steps()


def _no_loss(batch: Any) -> torch.Tensor:
    raise ElasticError("NoLoss", "this training has no loss function", hint="pass loss= to train")


def require_deterministic_kernels() -> None:
    """Make torch raise at any kernel that does not always give the same bits."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with this setting
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def _check_backend(backend: str, device: torch.device) -> None:
    if backend not in BACKENDS:
        raise ElasticError("BadBackend", f"backend is {backend!r}", hint=f"choose one of {', '.join(BACKENDS)}")
    if backend == "nccl" and device.type != "cuda":
        raise ElasticError(
            "BadBackend", f"nccl cannot carry gradients on {device.type}", hint="move the model to a GPU, or use gloo"
        )


def _create_sampler(source: DataSource, micro_batches: int, *, epochs: int, seed: int) -> StepSampler:
    batch = source.batch
    if micro_batches < 1 or batch < 1 or batch % micro_batches:
        raise ElasticError(
            "BadBatch",
            f"a batch of {batch} does not divide into {micro_batches} micro-batches",
            hint=f"choose a batch that is a multiple of {max(1, micro_batches)}",
        )
    return StepSampler(source.records, batch // micro_batches, micro_batches, epochs, seed, source.shuffle)


def leave_on_sigterm(runtime: WorkerRuntime) -> None:
    """On SIGTERM, hand over at the next step boundary and exit with 0. On SIGUSR1, print the stacks of all threads."""

    def leave(number: int, frame: Any) -> None:
        if runtime.client is not None:
            # In a thread: the interrupted thread may be sending, and would wait for itself.
            reason = "it got SIGTERM"
            threading.Thread(target=runtime.client.leave, args=(reason,), name="elastic-leave", daemon=True).start()

    signal.signal(signal.SIGTERM, leave)
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the agent sends it to a hung worker
