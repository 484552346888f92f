"""Checkpoints as directories: what makes one complete, which are kept, whether one is sound. Never imports torch.

A checkpoint is written beside its place and renamed into it when its manifest and all files are on disk: a name that is
there is complete. The manifest holds the size and sha256 of every file, and the ledger step.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchyard.elastic.errors import ElasticError

MANIFEST = "manifest.json"
FORMAT = "torchyard-checkpoint/1"
PREFIX = "step-"


@dataclass(frozen=True, slots=True)
class Manifest:
    step: int
    job: str
    order: dict[str, Any]
    files: dict[str, dict[str, Any]]
    sha256: str
    """Of all files' hashes together: names the checkpoint's content."""
    digest: str = ""
    format: str = FORMAT


def place(root: Path, step: int) -> Path:
    return root / f"{PREFIX}{step:010d}"


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(folder: Path, *, step: int, job: str, order: dict[str, Any], digest: str = "") -> Manifest:
    names = sorted(entry.name for entry in folder.iterdir() if entry.name != MANIFEST)
    files = {name: {"size": (folder / name).stat().st_size, "sha256": hash_file(folder / name)} for name in names}
    whole = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    return Manifest(step, job, order, files, whole, digest)


def publish(temporary: Path, final: Path, manifest: Manifest) -> None:
    """Make a written checkpoint the one of its step, whole or not at all."""
    (temporary / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1))
    sync(temporary)
    if final.exists():
        try:
            verify(final)
        except ElasticError:
            final.rename(final.with_name(f"{final.name}.{os.getpid()}.damaged"))
        else:
            shutil.rmtree(temporary)  # another worker has saved the same step
            return
    temporary.rename(final)
    _sync(final.parent)


def sync(folder: Path) -> None:
    """All files of a directory, and itself, on disk."""
    for entry in folder.iterdir():
        _sync(entry)
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(folder: Path) -> Manifest:
    try:
        raw = json.loads((folder / MANIFEST).read_text())
        if raw.get("format") != FORMAT:
            raise ElasticError(
                "ForeignCheckpoint",
                f"{folder} has format {raw.get('format')!r}, not {FORMAT!r}",
                hint="give a directory that this runtime has written",
            )
        return Manifest(**raw)
    except FileNotFoundError as error:
        raise ElasticError(
            "ForeignCheckpoint", f"{folder} has no {MANIFEST}", hint="give a directory that this runtime has written"
        ) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ElasticError(
            "DamagedCheckpoint", f"the manifest of {folder} cannot be read: {error}", hint="use an older checkpoint"
        ) from error


def verify(folder: Path) -> Manifest:
    """Read every byte; raise if one is not as it was written."""
    manifest = read(folder)
    for name, facts in manifest.files.items():
        path = folder / name
        size = path.stat().st_size if path.exists() else -1
        if size != facts["size"]:
            found = "is missing" if size < 0 else f"has {size} bytes, {facts['size']} were written"
            raise ElasticError("DamagedCheckpoint", f"{path} {found}", hint="use an older checkpoint")
        if hash_file(path) != facts["sha256"]:
            raise ElasticError("DamagedCheckpoint", f"{path} is not what was written", hint="use an older checkpoint")
    return manifest


def complete(root: Path) -> list[Path]:
    """All finished checkpoints, oldest first."""
    return sorted(entry for entry in root.glob(f"{PREFIX}*") if entry.is_dir() and not entry.suffix)


def newest_sound(root: Path) -> tuple[Path, Manifest] | None:
    """The newest that can be trusted: a damaged one is passed over, never repaired or removed."""
    for folder in reversed(complete(root)):
        try:
            return folder, verify(folder)
        except ElasticError:
            continue
    return None


def retain(root: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep`; what a dead writer left behind goes too."""
    gone = complete(root)[:-keep] if keep else []
    for folder in gone:
        shutil.rmtree(folder)
    return gone
