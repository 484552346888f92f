"""The process that makes staged states durable: reads one from shared memory, writes its files, publishes them.

A checkpoint has the tensors in the safetensors format, and everything else as JSON: to load it executes nothing.

Run as `python -m torchyard.elastic.checkpoint.writer`: a JSON request per line on stdin, a reply per line on stdout.
It completes a request even if its worker dies meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypedDict

import torch

from torchyard.elastic.checkpoint import dcp_reader, files, safetensors_file
from torchyard.elastic.checkpoint.remote import CheckpointStore, is_remote
from torchyard.elastic.checkpoint.staged import read_staged
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.state import Snapshot
from torchyard.elastic.world.state_header import LARGEST_HEADER, tensor_paths

STATE = "state.json"
TENSORS = "tensors.safetensors"


class SaveRequest(TypedDict):
    """Save a staged state as a checkpoint.

    Attributes:
        staged: the path of the staged state.
        owner: the job of the staged state.
        step: its step.
        root: the directory or URL of the checkpoints.
        keep: how many checkpoints to keep; 0 keeps all.
        job: the name of the job.
        order: the fields of the job's `StepSampler`.
        identity: the settings of the training.
        run: identifies this run of the job.
        fresh: whether the checkpoints of other runs are set aside first.
    """

    staged: str
    owner: str
    step: int
    root: str
    keep: int
    job: str
    order: dict[str, Any]
    identity: dict[str, Any]
    run: str
    fresh: bool


class SaveReply(TypedDict):
    """A checkpoint is durable, or `error` says why it is not. Before that, `read`: its staged state may change."""

    step: int
    path: str
    sha256: str
    error: str
    read: bool


def tensor_names(snapshot: Snapshot) -> list[str]:
    """Return the name of every tensor: its path in the state, for example `model.0.weight`."""
    names = tensor_paths(snapshot.skeleton)
    used: set[str] = set()
    for index in range(len(snapshot.tensors)):
        if names[index] in used or not names[index]:
            names[index] = f"{names[index]}#{index}"  # the keys 1 and "1" of a dict lead to the same name
        used.add(names[index])
    return [names[index] for index in range(len(snapshot.tensors))]


def write(
    snapshot: Snapshot,
    root: Path,
    *,
    step: int,
    job: str,
    order: dict[str, Any],
    keep: int,
    identity: dict[str, Any] | None = None,
    run: str = "",
) -> files.Manifest:
    """Write a snapshot as the checkpoint of its step."""
    final = files.checkpoint_path(root, step)
    files.remove_abandoned(root)
    temporary = final.with_name(f"{final.name}.{os.getpid()}.writing")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    lock = files.lock_directory(temporary)
    try:
        state = dict(zip(tensor_names(snapshot), snapshot.tensors, strict=True))
        safetensors_file.write(temporary / TENSORS, state)
        (temporary / STATE).write_bytes(snapshot.header())
        with ThreadPoolExecutor(1) as pool:  # the disk writes while the processor hashes
            synced = pool.submit(files.sync, temporary)
            manifest = files.build_manifest(temporary, step=step, job=job, order=order, identity=identity, run=run)
            synced.result()
        files.publish(temporary, final, manifest)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)  # a full disk has no room for incomplete checkpoints
        raise
    finally:
        os.close(lock)
    files.prune(root, keep)
    return manifest


def load(folder: Path) -> Snapshot:
    """Return the state in a checkpoint; verify it first. A file of another format is refused, never executed."""
    manifest = files.read_manifest(folder)
    wanted = (dcp_reader.SKELETON, dcp_reader.METADATA) if manifest.format == files.DCP_FORMAT else (STATE, TENSORS)
    missing = [name for name in wanted if name not in manifest.files]
    if missing:
        raise files.foreign(folder / missing[0], "the manifest does not name it")
    if manifest.format == files.DCP_FORMAT:
        return dcp_reader.load(folder)
    header = files.read_regular(folder / STATE, LARGEST_HEADER)
    size = manifest.files[TENSORS]["size"]
    snapshot = Snapshot.without_data(header, source=str(folder / STATE))
    if snapshot.nbytes > size:
        raise files.foreign(folder / STATE, f"its tensors have {snapshot.nbytes} bytes, but {TENSORS} has {size}")
    snapshot = Snapshot.empty_like(header, source=str(folder / STATE))
    safetensors_file.read_into(folder / TENSORS, dict(zip(tensor_names(snapshot), snapshot.tensors, strict=True)))
    return snapshot


def _save(snapshot: Snapshot, request: SaveRequest) -> SaveReply:
    """Write a checkpoint to a directory, or to a temporary directory and then to an object store."""
    root, step = request["root"], request["step"]
    facts: dict[str, Any] = {key: request[key] for key in ("step", "job", "order", "identity", "run")}
    if not is_remote(root):
        if request["fresh"]:
            files.set_aside(Path(root), request["run"])
        manifest = write(snapshot, Path(root), **facts, keep=request["keep"])
        return {
            "step": step,
            "path": str(files.checkpoint_path(Path(root), step)),
            "sha256": manifest.sha256,
            "error": "",
            "read": False,
        }
    store, staging = CheckpointStore(root), Path(mkdtemp(prefix="torchyard-checkpoint-"))
    try:
        manifest = write(snapshot, staging, **facts, keep=0)
        store.send(files.checkpoint_path(staging, step))
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    store.prune(request["keep"])
    path = f"{store.url}/{files.checkpoint_path(staging, step).name}"
    return {"step": step, "path": path, "sha256": manifest.sha256, "error": "", "read": False}


def _load_staged(request: SaveRequest) -> Snapshot:
    staged = read_staged(Path(request["staged"]), request["owner"])
    if staged is None or staged.step != request["step"]:
        raise ElasticError("CopyLost", f"the staged state of step {request['step']} is gone")
    snapshot = staged.load()
    if read_staged(staged.path, staged.owner) != staged:
        raise ElasticError("CopyLost", f"the staged state of step {staged.step} was replaced while it was read")
    return snapshot


def _serve() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        request: SaveRequest = json.loads(line)
        nothing: SaveReply = {"step": request["step"], "path": "", "sha256": "", "error": "", "read": False}
        try:
            snapshot = _load_staged(request)
            _reply({**nothing, "read": True})
            reply = _save(snapshot, request)
        except Exception as error:  # whatever a file system or an object store raises
            reply = {**nothing, "error": f"{type(error).__name__}: {error}"}
        _reply(reply)


def _reply(reply: SaveReply) -> None:
    with suppress(BrokenPipeError):  # the worker is gone, but its checkpoint is saved
        os.write(sys.stdout.fileno(), f"{json.dumps(reply)}\n".encode())


if __name__ == "__main__":
    _serve()
