"""A program with a loop over epochs, and in it one over batches, as most DDP scripts have.

for epoch, loader in job.epochs(model, optimizer, data=loader, micro_batches=4, epochs=3, also={"s": scheduler}):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        optimizer.step()
    scheduler.step()
    evaluate(model)

What follows the inner loop belongs to the last step of the epoch: the world changes only after it, so that a worker
which receives that step receives its effects too. A worker that receives a step of another epoch leaves its inner loop.
What it runs until the next epoch must then have no effect, so the received state is restored after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.own_loop import OwnLoop
from torchyard.elastic.worker.trainer import Trainer
from torchyard.elastic.world.coordinator_client import WorkerStopped
from torchyard.elastic.world.state import Snapshot


class EpochLoop:
    """The epochs of a training, each with the micro-batches of this worker.

    Args:
        trainer: reduces and applies steps.
        loop: the steps of the training.
        dataset: the dataset of the training.
    """

    def __init__(self, trainer: Trainer, loop: OwnLoop, dataset: Any) -> None:
        self._trainer = trainer
        self._loop = loop
        self.dataset = dataset
        self._per_epoch = trainer.sampler.steps_per_epoch
        self._snapshot: Snapshot | None = None
        self._stopped: WorkerStopped | None = None

    def epochs(self) -> Iterator[tuple[int, EpochBatches]]:
        """Yield the number of each epoch, from 0, and its batches."""
        runtime = self._trainer.runtime
        while runtime.step < self._trainer.sampler.steps:
            batches = EpochBatches(self, runtime.step // self._per_epoch)
            self._trainer.before_epoch()
            yield batches.epoch, batches
            if not batches.ended:
                raise ElasticError(
                    "EpochNotFinished",
                    f"the loop over the batches of epoch {batches.epoch} ended at step {runtime.step}, before the last "
                    "batch",
                    hint="iterate over all batches; to end the training early, leave the loop over the epochs too",
                )
            self._enter_next()
        self._trainer.end()

    def __len__(self) -> int:
        """Return how many batches this worker has in an epoch, in the present world."""
        return self._per_epoch * len(self._trainer.runtime.block)

    def _enter_next(self) -> None:
        """The program has done what follows the epoch."""
        if self._stopped is not None:
            raise self._stopped
        if self._snapshot is not None:
            self._trainer.runtime.state.restore(self._snapshot)
            self._snapshot = None
        else:
            self._loop.after_step()

    def batches(self, epoch: int) -> Iterator[Any]:
        """Yield the own micro-batches of an epoch, from the present step on."""
        runtime = self._trainer.runtime
        first, last = epoch * self._per_epoch, (epoch + 1) * self._per_epoch
        try:
            while True:
                yield from self._loop.next_step()
                if self._loop.applied is not None:
                    if runtime.step == last:
                        return
                    self._loop.after_step()
                if not first <= runtime.step < last:
                    self._keep_received()
                    return
        except WorkerStopped as stopped:
            self._stopped = stopped

    def _keep_received(self) -> None:
        """Keep the state of another epoch: what the program does until the next one may change it."""
        snapshot = self._trainer.runtime.state.capture()
        self._snapshot = Snapshot(snapshot.skeleton, [tensor.clone() for tensor in snapshot.tensors])


class EpochBatches:
    """The batches of one epoch: what the program iterates over in place of its loader.

    Attributes:
        dataset: the dataset, as `DataLoader` has it.
        epoch: the number of the epoch, from 0.
        ended: whether the program has iterated over all of them.
    """

    def __init__(self, loop: EpochLoop, epoch: int) -> None:
        self._loop = loop
        self.dataset = loop.dataset
        self.epoch = epoch
        self.ended = False

    def __len__(self) -> int:
        return len(self._loop)

    def __iter__(self) -> Iterator[Any]:
        if not self.ended:
            yield from self._loop.batches(self.epoch)
            self.ended = True
