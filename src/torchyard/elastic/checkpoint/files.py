"""Checkpoints as directories: when one is complete, which are kept, whether one is valid. It never imports torch.

A checkpoint is written under a temporary name and renamed when its manifest and all files are on disk. So a checkpoint
with its final name is complete. The manifest contains the size and sha256 of every file, and the step.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from torchyard.elastic.errors import ElasticError

MANIFEST = "manifest.json"
FORMAT = "torchyard-checkpoint/1"
PREFIX = "step-"


class FileRecord(TypedDict):
    """One file of a checkpoint."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of `manifest.json`.

    Attributes:
        step: the step that the model contains.
        job: the name of the job.
        order: the fields of the job's `StepSampler`.
        files: every other file of the checkpoint, by name.
        sha256: the hash of all files' hashes, which identifies the content.
        digest: the digest of the state, or an empty string.
        format: the format of the checkpoint.
    """

    step: int
    job: str
    order: dict[str, Any]
    files: dict[str, FileRecord]
    sha256: str
    digest: str = ""
    format: str = FORMAT


def checkpoint_path(root: Path, step: int) -> Path:
    """Return the path of a step's checkpoint."""
    return root / f"{PREFIX}{step:010d}"


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build_manifest(folder: Path, *, step: int, job: str, order: dict[str, Any], digest: str = "") -> Manifest:
    """Hash all files of a checkpoint."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.name != MANIFEST)
    files: dict[str, FileRecord] = {
        name: {"size": (folder / name).stat().st_size, "sha256": hash_file(folder / name)} for name in names
    }
    total = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    return Manifest(step, job, order, files, total, digest)


def publish(temporary: Path, final: Path, manifest: Manifest) -> None:
    """Give a written checkpoint its final name, atomically."""
    (temporary / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1))
    sync(temporary)
    if final.exists():
        try:
            verify(final)
        except ElasticError:
            final.rename(final.with_name(f"{final.name}.{os.getpid()}.damaged"))
        else:
            shutil.rmtree(temporary)  # another worker has saved this step already
            return
    temporary.rename(final)
    _sync(final.parent)


def sync(folder: Path) -> None:
    """Flush all files of a directory, and the directory, to disk."""
    for entry in folder.iterdir():
        _sync(entry)
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint."""
    try:
        raw = json.loads((folder / MANIFEST).read_text())
        if raw.get("format") != FORMAT:
            raise ElasticError(
                "ForeignCheckpoint",
                f"{folder} has format {raw.get('format')!r}, not {FORMAT!r}",
                hint="pass a directory that this runtime has written",
            )
        return Manifest(**raw)
    except FileNotFoundError as error:
        raise ElasticError(
            "ForeignCheckpoint", f"{folder} has no {MANIFEST}", hint="pass a directory that this runtime has written"
        ) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ElasticError(
            "DamagedCheckpoint", f"the manifest of {folder} is not valid: {error}", hint="use an older checkpoint"
        ) from error


def verify(folder: Path) -> Manifest:
    """Read all files; raise if one differs from what was written."""
    manifest = read_manifest(folder)
    for name, file in manifest.files.items():
        path = folder / name
        size = path.stat().st_size if path.exists() else -1
        if size != file["size"]:
            problem = "is missing" if size < 0 else f"has {size} bytes, but {file['size']} were written"
            raise ElasticError("DamagedCheckpoint", f"{path} {problem}", hint="use an older checkpoint")
        if hash_file(path) != file["sha256"]:
            raise ElasticError(
                "DamagedCheckpoint",
                f"the content of {path} differs from what was written",
                hint="use an older checkpoint",
            )
    return manifest


def list_checkpoints(root: Path) -> list[Path]:
    """Return all complete checkpoints, oldest first."""
    return sorted(entry for entry in root.glob(f"{PREFIX}*") if entry.is_dir() and not entry.suffix)


def newest_valid(root: Path) -> tuple[Path, Manifest] | None:
    """Return the newest checkpoint that verifies. A damaged one is skipped, never repaired or removed."""
    for folder in reversed(list_checkpoints(root)):
        try:
            return folder, verify(folder)
        except ElasticError:
            continue
    return None


def prune(root: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` checkpoints; 0 keeps all."""
    removed = list_checkpoints(root)[:-keep] if keep else []
    for folder in removed:
        shutil.rmtree(folder)
    return removed
