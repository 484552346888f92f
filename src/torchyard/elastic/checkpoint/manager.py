"""When state is copied and saved, and where a fresh worker finds it: ties memory and files to the training loop."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, Any

from torchyard.elastic import wire
from torchyard.elastic.checkpoint import files
from torchyard.elastic.checkpoint.remote import CheckpointCache, CheckpointStore, is_remote
from torchyard.elastic.checkpoint.staged import newest_copy
from torchyard.elastic.checkpoint.staging import Stager
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.world.runtime import RestoreSource, WorkerRuntime
from torchyard.elastic.world.state import TrainingState


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Where (a directory, or a URL that fsspec knows), how often, how many. The last step is always saved."""

    path: str
    every: int = 100
    keep: int = 3


class CheckpointManager(RestoreSource):
    def __init__(
        self,
        order: StepSampler,
        *,
        job: str,
        name: str,
        memory: Path,
        every: int = 0,
        saving: Checkpoints | None = None,
    ) -> None:
        self._order = order
        self._job = job
        self._folder = memory
        self._memory = Stager(memory, name)
        self._every = every
        self._saving = saving
        self._prepared = False
        self._writer: _WriterProcess | None = None
        self._remote: CheckpointCache | None = None
        if saving is not None and is_remote(saving.path):
            self._remote = CheckpointCache(CheckpointStore(saving.path), Path(mkdtemp(prefix="torchyard-checkpoints-")))

    def newest(self) -> int:
        copy = newest_copy(self._folder)
        saved = self._sound()
        return max(copy.step if copy else 0, saved[1].step if saved else 0)

    def _sound(self) -> tuple[Path, files.Manifest] | None:
        if self._saving is None:
            return None
        found = self._remote.newest_sound() if self._remote else files.newest_sound(Path(self._saving.path))
        if found is not None and found[1].order != asdict(self._order):
            was, now = found[1].order, asdict(self._order)
            changed = [key for key in now if was.get(key) != now[key]]
            told = "; ".join(f"{key} was {was.get(key)} and is now {now[key]}" for key in changed)
            raise ElasticError(
                "OtherCheckpoint",
                f"{found[0]} was made with another data order: {told}",
                hint="bring back the settings and dataset it was made with, or choose an empty checkpoint directory",
            )
        return found

    def load(self, state: TrainingState) -> int:
        """Memory wins over disk when it is newer. A fresh model is step 0."""
        copy, saved = newest_copy(self._folder), self._sound()
        if copy is not None and (saved is None or copy.step >= saved[1].step):
            state.restore(copy.load(state.gpu))
            return copy.step
        if saved is not None:
            from torchyard.elastic.checkpoint.writer import load

            state.restore(load(saved[0]))
            return saved[1].step
        return 0

    def after_step(self, runtime: WorkerRuntime) -> None:
        """Called when a step was applied and the loop's body has run."""
        step, saving = runtime.step, self._saving
        last = step == self._order.steps
        if not self._prepared and not last and (self._every or runtime.rank == 0):
            self._prepared = True  # an optimiser's state is there after its first step, not before
            self._memory.prepare(runtime.state.capture())
        save = saving is not None and runtime.rank == 0 and (step % saving.every == 0 or last)
        if not save and not (self._every and step % self._every == 0 and not last):
            return
        snapshot = runtime.state.capture_until_update()
        self._memory.begin(step, snapshot, partial(self._save, runtime, step) if save else None)

    def before_update(self) -> None:
        """The copy must be whole before the state changes."""
        self._memory.before_change()

    def _save(self, runtime: WorkerRuntime, step: int, copy: Path) -> None:
        assert self._saving is not None
        if self._writer is None:
            self._writer = _WriterProcess(partial(self._saved, runtime))
        asked = {"copy": str(copy), "step": step, "root": self._saving.path, "keep": self._saving.keep}
        self._writer.ask(asked | {"job": self._job, "order": asdict(self._order)})

    def _saved(self, runtime: WorkerRuntime, answer: dict[str, Any]) -> None:
        if "error" in answer:
            sys.stderr.write(f"the checkpoint of step {answer['step']} was not saved: {answer['error']}\n")
        elif runtime.link is not None:
            runtime.link.send(wire.CheckpointSaved(runtime.fence, answer["step"], answer["path"], answer["sha256"]))

    def close(self) -> None:
        """Wait for what is being written: the last checkpoint belongs to the job."""
        self._memory.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class _WriterProcess:
    """The writer process and the thread that hears its answers."""

    def __init__(self, heard: Callable[[dict[str, Any]], None]) -> None:
        command = [sys.executable, "-m", "torchyard.elastic.checkpoint.writer"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: IO[str] = self._process.stdin
        self._stdout: IO[str] = self._process.stdout
        self._heard = heard
        self._listener = threading.Thread(target=self._listen, name="elastic-saved", daemon=True)
        self._listener.start()

    def ask(self, request: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(request) + "\n")
        self._stdin.flush()

    def _listen(self) -> None:
        for line in self._stdout:
            self._heard(json.loads(line))

    def close(self) -> None:
        self._stdin.close()
        self._listener.join()
        self._stdout.close()
        self._process.wait()
