"""Decides when state is staged and saved, and where a new worker finds it: connects both to the training loop."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from torchyard.elastic import wire
from torchyard.elastic.checkpoint import files
from torchyard.elastic.checkpoint.remote import CheckpointCache, CheckpointStore, is_remote
from torchyard.elastic.checkpoint.staged import newest_staged, owner_of
from torchyard.elastic.checkpoint.staging import Stager
from torchyard.elastic.checkpoint.writer_process import CheckpointWriter
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.identity import HINT, ResumePolicy, describe, differences
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.world.runtime import RestoreSource, WorkerRuntime
from torchyard.elastic.world.state import TrainingState

if TYPE_CHECKING:  # at run time it would import DCP, which only the writer process needs
    from torchyard.elastic.checkpoint.writer import SaveReply


RETRY_AFTER = (0.5, 1.0, 2.0)
"""Seconds after which the checkpoint of the last step is tried again: a disk may have room later."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Where and how often to save checkpoints. The last step is always saved.

    Attributes:
        path: a directory, or a URL that fsspec supports, for example `s3://bucket/prefix`.
        every: save every this many steps.
        keep: how many of the newest checkpoints to keep; 0 keeps all.
    """

    path: str
    every: int = 100
    keep: int = 3

    def of_training(self, number: int) -> Checkpoints:
        """Return the place of one of several trainings: the first uses the path itself, the others folders in it."""
        return self if number == 1 else replace(self, path=f"{self.path.rstrip('/')}/training-{number}")


class CheckpointManager(RestoreSource):
    """Stages and saves the state of one worker, and restores the newest state.

    Args:
        sampler: the job's sampler; a checkpoint with another one is refused.
        job: the name of the job.
        name: identifies this worker's staged state on its machine.
        memory: a directory in shared memory.
        snapshot_every: stage the state every this many steps; 0 stages it only for checkpoints.
        checkpoints: where and how often to save checkpoints; None saves none.
        token: the secret of the job: a staged state of another job is ignored.
        identity: the settings of the training: a checkpoint of another training is refused.
        resume: whether to continue from what an earlier run has left.
        on_changed: called after a restore with the settings of a checkpoint that differ from the present ones, if
            `resume` allows that; returns the names of those that were applied.
        remove_memory: whether `memory` belongs to this process alone and ends with it.
        stage_last: whether to stage the last step too, because another training follows.
    """

    def __init__(  # noqa: PLR0913  # everything that decides what is saved and restored
        self,
        sampler: StepSampler,
        *,
        job: str,
        name: str,
        memory: Path,
        snapshot_every: int = 0,
        checkpoints: Checkpoints | None = None,
        token: str = "",
        identity: dict[str, Any] | None = None,
        resume: ResumePolicy | None = None,
        on_changed: Callable[[dict[str, Any], list[str]], list[str]] | None = None,
        remove_memory: bool = False,
        stage_last: bool = False,
    ) -> None:
        self._sampler = sampler
        self._identity = identity or {}
        self._resume = resume or ResumePolicy()
        self._on_changed = on_changed
        self._job = job
        self._memory = memory
        self._owner = owner_of(token, self._identity)
        self._stager = Stager(memory, name, owner=self._owner)
        self._skipped: set[Path] = set()
        self._snapshot_every = snapshot_every
        self._checkpoints = checkpoints
        self._prepared = False
        self._runtime: WorkerRuntime | None = None
        self._failed: tuple[int, str] | None = None
        self._remove_memory = remove_memory
        self._stage_last = stage_last
        self._writer = CheckpointWriter(self._on_saved)
        self._stager.before_overwrite = self._writer.wait_until_read
        self._remote: CheckpointCache | None = None
        if checkpoints is not None and is_remote(checkpoints.path):
            if self._resume.fresh:
                raise ElasticError(
                    "FreshRemote",
                    f"the checkpoints at {checkpoints.path} cannot be set aside: an object store has no rename",
                    hint="use another URL for a fresh start",
                )
            cache = Path(mkdtemp(prefix="torchyard-checkpoints-"))
            self._remote = CheckpointCache(CheckpointStore(checkpoints.path), cache)

    def newest(self) -> int:
        """Return the newest step in shared memory or in a checkpoint; 0 if there is none."""
        staged = newest_staged(self._memory, self._owner)
        saved = self._newest_checkpoint()
        return max(staged.step if staged else 0, saved[1].step if saved else 0)

    def _newest_checkpoint(self) -> tuple[Path, files.Manifest] | None:
        if self._checkpoints is None:
            return None
        if self._remote is not None:
            newest = self._remote.newest_valid(self._report_skipped)
        else:
            run = self._resume.run if self._resume.fresh else ""
            newest = files.newest_valid(Path(self._checkpoints.path), self._report_skipped, run=run)
        if newest is not None:
            self._check_same_training(*newest)
        return newest

    def _check_same_training(self, path: Path, manifest: files.Manifest) -> None:
        """Raise if a checkpoint is not one of this training. It may have been saved by a training of fewer epochs."""
        current = asdict(self._sampler)
        saved = manifest.order | {"epochs": current["epochs"]}
        if saved != current:
            changed = [key for key in current if saved.get(key) != current[key]]
            changes = "; ".join(f"{key} was {saved.get(key)} and is now {current[key]}" for key in changed)
            raise ElasticError(
                "OtherCheckpoint",
                f"{path} was saved with another data order: {changes}",
                hint="restore its settings and dataset, or use an empty checkpoint directory, or start again with "
                "--fresh (or join(resume='fresh'))",
            )
        if manifest.step > self._sampler.steps:
            raise ElasticError(
                "OtherCheckpoint",
                f"{path} contains {manifest.step} steps, but this training has only {self._sampler.steps}",
                hint="train more epochs, or start again with --fresh (or join(resume='fresh'))",
            )
        if manifest.identity and not self._resume.anyway and differences(manifest.identity, self._identity):
            raise ElasticError(
                "OtherCheckpoint",
                f"{path} was saved by another training: {describe(manifest.identity, self._identity)}",
                hint=HINT,
            )

    def _report_skipped(self, folder: Path, error: ElasticError) -> None:
        if folder not in self._skipped:
            self._skipped.add(folder)
            sys.stderr.write(f"checkpoint skipped: path={folder} reason={error.message}\n")

    def load(self, state: TrainingState) -> int:
        """Load the newest state, and return its step. Shared memory is preferred; a new model is step 0."""
        staged, saved = newest_staged(self._memory, self._owner), self._newest_checkpoint()
        if staged is not None and (saved is None or staged.step >= saved[1].step):
            state.restore(staged.load(state.gpu))
            self._report_resumed(staged.step, "shared memory")
            return staged.step
        if saved is not None:
            from torchyard.elastic.checkpoint.writer import load

            path, manifest = saved
            state.restore(load(path))
            self._report_resumed(manifest.step, str(path))
            changed = differences(manifest.identity, self._identity) if manifest.identity else []
            if changed and self._on_changed is not None:
                applied = self._on_changed(manifest.identity, changed)
                sys.stderr.write(f"settings changed since the checkpoint: changed={changed} applied={applied}\n")
            return manifest.step
        return 0

    def _report_resumed(self, step: int, source: str) -> None:
        rest = "" if step < self._sampler.steps else " (nothing is left to train)"
        sys.stderr.write(f"training resumed: step={step} of={self._sampler.steps} from={source}{rest}\n")

    def after_step(self, runtime: WorkerRuntime) -> None:
        """Stage the state if it is due. Call it after a step was applied and the loop's body has run."""
        step, checkpoints = runtime.step, self._checkpoints
        last = step == self._sampler.steps
        self._runtime = runtime
        if checkpoints is not None and runtime.rank == 0:
            self._writer.start()  # early: its start takes longer than many steps
        if not self._prepared and not last and (self._snapshot_every or runtime.rank == 0):
            self._prepared = True  # an optimizer has its state only after its first step
            self._stager.prepare(runtime.state.capture())
        save = checkpoints is not None and runtime.rank == 0 and (step % checkpoints.every == 0 or last)
        due = self._stage_last if last else self._snapshot_every and step % self._snapshot_every == 0
        if save or due:
            self._stage(runtime, save=save)

    def save_end(self, runtime: WorkerRuntime) -> None:
        """Stage and save the present state: the program has left its loop early, and another training follows."""
        self._runtime = runtime
        self._stage(runtime, save=self._checkpoints is not None and runtime.rank == 0)
        self.finish()

    def _stage(self, runtime: WorkerRuntime, *, save: bool) -> None:
        snapshot = runtime.state.capture_until_update()
        self._stager.stage(runtime.step, snapshot, partial(self._save, runtime.step) if save else None)

    def before_update(self) -> None:
        """Wait until the state may change. Call it before the optimizer's step."""
        self._stager.synchronize_staging()

    def _save(self, step: int, staged: Path) -> None:
        assert self._checkpoints is not None
        self._writer.send(
            {
                "staged": str(staged),
                "owner": self._owner,
                "step": step,
                "root": self._checkpoints.path,
                "keep": self._checkpoints.keep,
                "job": self._job,
                "order": asdict(self._sampler),
                "identity": self._identity,
                "run": self._resume.run,
                "fresh": self._resume.fresh,
            }
        )

    def _on_saved(self, reply: SaveReply) -> None:
        runtime = self._runtime
        self._failed = (reply["step"], reply["error"]) if reply["error"] else None
        if reply["error"]:
            sys.stderr.write(f"checkpoint not saved: step={reply['step']} error={reply['error']}\n")
        elif runtime is not None and runtime.client is not None:
            saved = wire.CheckpointSaved(runtime.fence, reply["step"], reply["path"], reply["sha256"])
            runtime.client.send(saved)

    def finish(self) -> None:
        """Wait until the checkpoint of the last step is durable: it belongs to the job. Raise if it cannot be saved."""
        self._stager.wait()
        for pause in (*RETRY_AFTER, None):
            self._writer.wait_until_saved()
            if self._failed is None:
                self._writer.close()
                return
            step, error = self._failed
            staged = newest_staged(self._memory, self._owner)
            if pause is None or staged is None or staged.step != step:
                raise ElasticError(
                    "CheckpointNotSaved",
                    f"the checkpoint of step {step} could not be saved: {error}",
                    hint="make the checkpoint directory writable, or make room in it; the job then continues from "
                    "its newest checkpoint",
                )
            time.sleep(pause)
            self._save(step, staged.path)

    def close(self) -> None:
        """Release everything; wait for checkpoints that are being saved."""
        try:
            self._stager.close()
        finally:
            self._writer.close()
            if self._remove_memory:
                shutil.rmtree(self._memory, ignore_errors=True)
