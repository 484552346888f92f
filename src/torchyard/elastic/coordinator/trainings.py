"""The trainings of a program that has several: which are finished, and what a worker hears that begins an earlier one.

A worker that joins late begins with the first training of its program. For each finished one it is told the last step,
loads the state of that step from shared memory or a checkpoint, and goes on to the next.
"""

from __future__ import annotations

from torchyard.elastic import wire
from torchyard.elastic.coordinator import admission
from torchyard.elastic.coordinator.ledger_writer import LedgerWriter
from torchyard.elastic.ledger import Ledger
from torchyard.elastic.wire import StopCause


class Trainings:
    """The position of a job in its program.

    Attributes:
        number: the number of the present training, from 1.
        count: how many trainings the program has.
    """

    def __init__(self, ledger: Ledger, ledger_writer: LedgerWriter) -> None:
        self._ledger = ledger
        self._ledger_writer = ledger_writer
        self.number = len(ledger.finished_trainings) + 1
        self.count = self.number

    @property
    def is_last(self) -> bool:
        return self.number >= self.count

    def is_finished(self, hello: wire.Hello) -> bool:
        """Return whether a worker has begun a training that is finished; raise if that was another training."""
        number, _ = admission.read_training(hello.name, hello.config)
        admission.check_training(hello.name, number, self.number)
        if number < self.number and hello.resume != "anyway":
            ended = self._ledger.finished_trainings[number - 1]
            admission.check_finished(hello.name, *admission.read_sampler(hello), ended)
        return number < self.number

    def is_lost(self, hello: wire.Hello) -> bool:
        """Return whether a worker needs the last state of a training of an earlier run, and cannot find it.

        Within one run, other workers are between two trainings; the worker itself reports what it cannot read.
        """
        number, _ = admission.read_training(hello.name, hello.config)
        ended = self._ledger.finished_trainings[number - 1]
        readable = hello.progress.live or hello.progress.restorable == ended["step"]
        return not readable and ended["incarnation"] < self._ledger.incarnation

    def reopen(self, hello: wire.Hello) -> None:
        """Return to the training of a worker: its last state is lost."""
        self.number, _ = admission.read_training(hello.name, hello.config)
        step = self._ledger.finished_trainings[self.number - 1]["step"]
        text = f"the state with which training {self.number} ended, at step {step}, is lost: it is trained again"
        self._ledger_writer.add_event("TrainingReopened", text)
        self._ledger_writer.flush()
        self._ledger_writer.submit(lambda: self._ledger.reopen_training(self.number)).result()

    def end(self, message: str, step: int, config: dict[str, object]) -> wire.Stop:
        """End the present training, begin the next, and return what the workers of the present one hear."""
        number = self.number
        self._ledger_writer.add_event("TrainingFinished", f"training {number} of {self.count}: {message}")
        self._ledger_writer.flush()
        # The workers rely on it at once, so it must be durable first.
        self._ledger_writer.submit(lambda: self._ledger.end_training(step, config)).result()
        self.number += 1
        return self.stop(number)

    def stop(self, number: int) -> wire.Stop:
        """Return the end of a finished training."""
        step = self._ledger.finished_trainings[number - 1]["step"]
        message = f"training {number} of {self.count} is finished: {step} steps"
        return wire.Stop(StopCause.TRAINING_FINISHED, message, step)
