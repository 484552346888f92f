"""How a training ends: with its last step, when the program leaves its loop, or because the coordinator stops it.

A program may have several trainings. Each ends with a state that workers which join later load before they go on to the
next one: the code between two trainings runs on every worker, and must see the same model everywhere.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Generator, Iterator
from functools import partial
from typing import Any, NoReturn, TypeVar

from torchyard.elastic import wire
from torchyard.elastic.errors import ElasticError, JobFailed
from torchyard.elastic.wire import StopCause, WorkerPhase
from torchyard.elastic.worker.seeding import seed_generators
from torchyard.elastic.worker.training import Training
from torchyard.elastic.world.coordinator_client import WorkerStopped

T = TypeVar("T")


def close_after(training: Training, steps: Iterator[T]) -> Generator[T, None, None]:
    """Yield all steps, then release resources. The coordinator's `Stop` becomes an end, an exit or an error.

    The code after the loop of a program expects a trained model: a worker without one exits instead. A program that
    leaves its loop early (`break`, `return`, `sys.exit`) ends the training when it exits or begins the next training:
    until then nothing tells such an end from an exception, which does not end the job.
    """
    runtime = training.trainer.runtime
    # If a program exits inside its loop, this generator is closed at the interpreter's exit: too late to join threads.
    at_exit = partial(_finish_at_exit, training)
    atexit.register(at_exit)
    _note_failing_exits()
    try:
        yield from steps
    except GeneratorExit:
        if runtime.client is not None:
            training.at_exit.append(at_exit)
        runtime.set_phase(WorkerPhase.OUTSIDE)
        raise
    except WorkerStopped as stopped:
        react(training, stopped.stop)
    finally:
        seed_afterwards(training)
        if not training.at_exit:
            atexit.unregister(at_exit)
            training.close()


def react(training: Training, stop: wire.Stop) -> None:
    """Return if this worker holds the end of its training; otherwise exit the program or raise."""
    runtime = training.trainer.runtime
    if stop.ends_training and runtime.step == stop.step and runtime.live:
        return
    if stop.cause is StopCause.TRAINING_FINISHED:
        _load_end(training, stop.step)
        return
    if stop.cause in (StopCause.FINISHED, StopCause.RETIRED):
        _dismissed.append(True)
        # Where a pod that exits with 0 would not be replaced, a worker that leaves exits with another code.
        code = os.environ.get("TORCHYARD_ELASTIC_RETIRED_CODE", "0") if stop.cause is StopCause.RETIRED else "0"
        raise SystemExit(int(code)) from None
    raise JobFailed("JobFailed", stop.message) from None


def _load_end(training: Training, step: int) -> None:
    """Load the state with which a training ended that this worker has missed."""
    runtime = training.trainer.runtime
    runtime.step = runtime.restore_source.load(runtime.state)
    if runtime.step != step:
        raise ElasticError(
            "TrainingStateMissing",
            f"this worker cannot read the state with which training {training.number} ended, at step {step}: it "
            f"finds step {runtime.step}",
            hint="pass checkpoints= to every training but the last, with a path that all workers share",
        )


def seed_afterwards(training: Training) -> None:
    """Seed all generators: what the program draws after a training must not depend on the history of the worker."""
    trainer = training.trainer
    seed_generators(trainer.sampler.body_seed(trainer.runtime.step), trainer.device)


def finish_left_loop(training: Training, steps: Generator[Any, None, None] | None, *, iterated: bool) -> None:
    """Finish a training whose loop the program has left early, because it begins the next training.

    Args:
        training: the training.
        steps: its steps, if the program still refers to them.
        iterated: whether the program has begun to iterate over them.
    """
    if not iterated:
        raise ElasticError(
            "NotTrained",
            f"training {training.number} was created, but its steps were not iterated over",
            hint="iterate over the result of train before the next training",
        )
    if steps is not None:
        steps.close()
    if not training.at_exit:
        return
    for at_exit in training.at_exit:
        atexit.unregister(at_exit)
    training.at_exit.clear()
    runtime = training.trainer.runtime
    try:
        if runtime.client is not None:
            if training.manager is not None:
                training.manager.save_end(runtime)
            runtime.finish(early=True)
    except WorkerStopped as stopped:
        react(training, stopped.stop)
    finally:
        training.close()


_dismissed: list[bool] = []
"""Has an entry when the coordinator has no more work for this worker."""


def require_trainings(trainings: int, begun: list[int]) -> None:
    """Fail a program that exits before it has begun all the trainings that it has declared: the job waits for them."""

    def check() -> None:
        if begun and len(begun) < trainings and not _dismissed and not _failed():
            sys.stderr.write(
                f"the program ended after training {len(begun)}, but it declares {trainings}\n"
                f"  what to do: pass elastic.join(trainings={len(begun)})\n"
            )
            sys.stderr.flush()
            os._exit(1)

    atexit.register(check)


_exits_noted: list[bool] = []


def _note_failing_exits() -> None:
    """Let exit handlers see a `sys.exit` with an error code: the interpreter keeps no trace of it."""
    if _exits_noted:
        return
    _exits_noted.append(True)
    exit_program = sys.exit

    def noting_exit(status: Any = None, /) -> NoReturn:
        if status:
            sys.last_value = SystemExit(status)
        exit_program(status)

    sys.exit = noting_exit


def _failed() -> bool:
    """Return whether an exception or an error code ends the program."""
    return (getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)) is not None


def _finish_at_exit(training: Training) -> None:
    """The program exits before its last step: finish the job, unless an exception ends the program."""
    runtime = training.trainer.runtime
    try:
        if not _failed() and runtime.client is not None and runtime.step:
            runtime.finish(early=True)
    except (WorkerStopped, ElasticError) as error:
        sys.stderr.write(f"worker stopped: reason={error}\n")
    finally:
        training.close()
