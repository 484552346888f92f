"""The public face: `join` a job, then `train`. Without a coordinator in the environment the same program trains alone.

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
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from torchyard.elastic import wire
from torchyard.elastic.checkpoint.manager import CheckpointManager, Checkpoints
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.reduce.fast import FastReducer
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.sidecar import serve_beside
from torchyard.elastic.worker.loader import MapDataset, MicroBatchLoader
from torchyard.elastic.worker.streams import Streams
from torchyard.elastic.worker.trainer import OptimizerUpdate, Step, Trainer, closing
from torchyard.elastic.world.runtime import WorkerConfig, WorkerRuntime
from torchyard.elastic.world.state import Stateful, TrainingState

MODES: dict[str, type[StrictReducer] | type[FastReducer]] = {"strict": StrictReducer, "fast": FastReducer}


BACKENDS = ("gloo", "nccl")
"""What carries gradients. NCCL wants a GPU for each worker; over gloo several may share one."""


def join(*, seed: int = 0, threads: int | None = None) -> Job:
    """Seed torch, so that every worker builds the same model, and settle the number of threads a kernel may use.

    The sums of a kernel depend on its thread count: in strict mode it must be the same on every worker.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(threads or int(os.environ.get("OMP_NUM_THREADS", "1")))
    serve_beside()
    return Job(seed, WorkerConfig.from_environment())


class Job:
    def __init__(self, seed: int, seat: WorkerConfig | None) -> None:
        self.seed = seed
        self._seat = seat
        self._runtime: WorkerRuntime | None = None

    @property
    def alone(self) -> bool:
        return self._seat is None

    @property
    def digest(self) -> str:
        """The sha256 of everything trained: equal for equal models, in strict mode after any history."""
        return self._started().state.digest()

    @property
    def recomputed_steps(self) -> int:
        return self._started().recomputed

    def _started(self) -> WorkerRuntime:
        if self._runtime is None:
            raise ElasticError("NotStarted", "the job has not begun to train", hint="call train first")
        return self._runtime

    def train(  # noqa: PLR0913  # the settings of a training, all by name
        self,
        model: torch.nn.Module,
        optimizer: Any,
        *,
        loss: Callable[[Any], torch.Tensor],
        data: MapDataset,
        batch: int,
        micro_batches: int = 1,
        epochs: int = 1,
        mode: str = "strict",
        backend: str = "gloo",
        shuffle: bool = True,
        clip_norm: float | None = None,
        scheduler: Any = None,
        scaler: Any = None,
        also: Mapping[str, Stateful] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        prefetch: int = 2,
        digest_every: int = 0,
        checkpoints: Checkpoints | None = None,
        snapshot_every: int = 0,
    ) -> Iterator[Step]:
        """Yield every step after it was applied. `batch` records make a step, cut into `micro_batches`.

        `loss` gets one collated micro-batch and returns its mean loss. `also` names further objects whose state belongs
        to the model's. The body of the loop runs on every worker; whatever it changes must be in the state.
        """
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            raise ElasticError(
                "WrappedModel",
                "the model is wrapped in DistributedDataParallel, which would average gradients a second time",
                hint="pass the model itself; drop the wrapper, the sampler and init_process_group",
            )
        if isinstance(data, torch.utils.data.IterableDataset):
            raise ElasticError(
                "NotReadable",
                "an IterableDataset cannot be read again from where a dead worker was",
                hint="describe it as elastic.Streams(sources, open_at), which can",
            )
        shuffle = shuffle and not isinstance(data, Streams)  # streams are read in a row
        order = _order(len(data), batch, micro_batches, epochs=epochs, seed=self.seed, shuffle=shuffle)
        state = _state(model, optimizer, scheduler=scheduler, scaler=scaler, also=also or {})
        if mode not in MODES:
            raise ElasticError("BadMode", f"mode is {mode!r}", hint=f"choose one of {', '.join(MODES)}")
        if mode == "strict":
            refuse_other_bits()
        config = {"order": asdict(order), "mode": mode, "backend": backend, "threads": torch.get_num_threads()}
        reducer = MODES[mode](model, micro_batches)
        _check_backend(backend, reducer.layout.device)
        keeper = self._keeper(order, every=snapshot_every, saving=checkpoints)
        runtime = self._runtime = WorkerRuntime(state, order, config=config, stored=keeper, nccl=backend == "nccl")
        loader = MicroBatchLoader(order, data, collate=collate, ahead=prefetch)
        update = OptimizerUpdate(optimizer, reducer.layout.parameters, clip_norm, scaler, scheduler)
        trainer = Trainer(runtime, loader, reducer, loss=loss, update=update, digest_every=digest_every, keeper=keeper)

        def close() -> None:
            loader.close()
            if keeper is not None:
                keeper.close()
            runtime.close()

        return closing(trainer, self._run(trainer), close)

    def _keeper(self, order: StepSampler, *, every: int, saving: Checkpoints | None) -> CheckpointManager | None:
        if not every and saving is None:
            return None
        job, name = (self._seat.job, self._seat.name) if self._seat else ("alone", "alone")
        name = os.environ.get("TORCHYARD_ELASTIC_PLACE", name)  # copies belong to the place: its next worker uses them
        given = os.environ.get("TORCHYARD_ELASTIC_MEMORY")
        memory = Path(given) if given else Path(mkdtemp(prefix="torchyard-elastic-"))
        return CheckpointManager(order, job=job, name=name, memory=memory, every=every, saving=saving)

    def _run(self, trainer: Trainer) -> Iterator[Step]:
        runtime = trainer.runtime
        if self._seat is not None:
            trainer.practise()
        runtime.start(self._seat)
        if self._seat is not None:
            leave_on_sigterm(runtime)
        yield from trainer.steps()


def refuse_other_bits() -> None:
    """Only kernels that give the same bits every time; torch raises at any other."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS has no such form
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def _check_backend(backend: str, device: torch.device) -> None:
    if backend not in BACKENDS:
        raise ElasticError("BadBackend", f"backend is {backend!r}", hint=f"choose one of {', '.join(BACKENDS)}")
    if backend == "nccl" and device.type != "cuda":
        raise ElasticError(
            "BadBackend", f"nccl cannot carry gradients on {device.type}", hint="put the model on a GPU, or use gloo"
        )


def _order(records: int, batch: int, micro_batches: int, *, epochs: int, seed: int, shuffle: bool) -> StepSampler:
    if micro_batches < 1 or batch < 1 or batch % micro_batches:
        raise ElasticError(
            "BadBatch",
            f"a batch of {batch} does not divide into {micro_batches} micro-batches",
            hint=f"choose a batch that is a multiple of {max(1, micro_batches)}",
        )
    return StepSampler(records, batch // micro_batches, micro_batches, epochs, seed, shuffle)


def _state(
    model: torch.nn.Module, optimizer: Any, *, scheduler: Any, scaler: Any, also: Mapping[str, Stateful]
) -> TrainingState:
    parts: dict[str, Stateful] = {"model": model, "optimizer": optimizer}
    parts |= {name: part for name, part in (("scheduler", scheduler), ("scaler", scaler)) if part is not None}
    return TrainingState(parts | dict(also))


def leave_on_sigterm(runtime: WorkerRuntime) -> None:
    """A preemption notice: hand over at the next step boundary, then exit with success."""

    def leave(number: int, frame: Any) -> None:
        if runtime.link is not None:
            # From a thread: the interrupted one may itself be sending, and would wait for itself.
            told = wire.LeaveRequest("it got SIGTERM")
            threading.Thread(target=runtime.link.send, args=(told,), name="elastic-leaving", daemon=True).start()

    signal.signal(signal.SIGTERM, leave)
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # how the agent asks a hung worker where it stands
