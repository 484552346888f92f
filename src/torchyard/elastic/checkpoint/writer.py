"""The process that makes copies durable: reads one from shared memory, writes it with DCP, publishes it.

Run as `python -m torchyard.elastic.checkpoint.writer`: a JSON request per line on stdin, an answer per line on stdout.
It finishes what it has begun even if its worker dies meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from torchyard.elastic.checkpoint import files
from torchyard.elastic.checkpoint.remote import CheckpointStore, is_remote
from torchyard.elastic.checkpoint.staged import StagedState, read_copy
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.state import Snapshot

SKELETON = "skeleton.pt"


def names_of(snapshot: Snapshot) -> list[str]:
    """A readable name for every tensor: its path in the state, as in `model.0.weight`."""
    found: dict[int, str] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, str) and value.startswith("\0tensor:"):
            found[int(value.removeprefix("\0tensor:"))] = path
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}.{key}" if path else str(key))
        elif isinstance(value, list):
            for place, item in enumerate(value):
                walk(item, f"{path}.{place}")

    walk(snapshot.skeleton, "")
    return [found[place] for place in range(len(snapshot.tensors))]


def write(snapshot: Snapshot, root: Path, *, step: int, job: str, order: dict[str, Any], keep: int) -> files.Manifest:
    final = files.place(root, step)
    temporary = final.with_name(f"{final.name}.{os.getpid()}.writing")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    state = dict(zip(names_of(snapshot), snapshot.tensors, strict=True))
    dcp_save(state, checkpoint_id=str(temporary), no_dist=True)
    (temporary / SKELETON).write_bytes(snapshot.header())
    with ThreadPoolExecutor(1) as beside:  # the disk works while the processor hashes
        on_disk = beside.submit(files.sync, temporary)
        manifest = files.describe(temporary, step=step, job=job, order=order)
        on_disk.result()
    files.publish(temporary, final, manifest)
    files.retain(root, keep)
    return manifest


def load(folder: Path) -> Snapshot:
    """The state in a checkpoint; verify it first."""
    snapshot = Snapshot.empty_like((folder / SKELETON).read_bytes())
    with warnings.catch_warnings():
        _alone_is_meant()
        dcp_load(dict(zip(names_of(snapshot), snapshot.tensors, strict=True)), checkpoint_id=str(folder), no_dist=True)
    return snapshot


def _alone_is_meant() -> None:
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def _save(snapshot: Snapshot, asked: dict[str, Any]) -> dict[str, str]:
    """Write where it was asked for: straight into a directory, or beside and then off to a store."""
    root, step, keep = asked["root"], asked["step"], asked["keep"]
    facts = {"step": step, "job": asked["job"], "order": asked["order"]}
    if not is_remote(root):
        manifest = write(snapshot, Path(root), **facts, keep=keep)
        return {"path": str(files.place(Path(root), step)), "sha256": manifest.sha256}
    store, staging = CheckpointStore(root), Path(mkdtemp(prefix="torchyard-checkpoint-"))
    try:
        manifest = write(snapshot, staging, **facts, keep=0)
        store.send(files.place(staging, step))
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    store.retain(keep)
    return {"path": f"{store.url}/{files.place(staging, step).name}", "sha256": manifest.sha256}


def _serve() -> None:
    torch.set_num_threads(1)
    _alone_is_meant()
    for line in sys.stdin:
        asked = json.loads(line)
        copy: StagedState | None = read_copy(Path(asked["copy"]))
        try:
            if copy is None or copy.step != asked["step"]:
                raise ElasticError("CopyLost", f"the copy of step {asked['step']} is gone")
            snapshot = copy.load()
            if read_copy(copy.path) != copy:
                raise ElasticError("CopyLost", f"the copy of step {copy.step} was replaced while it was read")
            answer = {"step": copy.step} | _save(snapshot, asked)
        except (OSError, RuntimeError, ElasticError) as error:
            answer = {"step": asked["step"], "error": str(error)}
        with suppress(BrokenPipeError):  # the worker is gone: what it asked for is saved all the same
            os.write(sys.stdout.fileno(), f"{json.dumps(answer)}\n".encode())


if __name__ == "__main__":
    _serve()
