"""Checkpoints as directories: when one is complete, which are kept, whether one is valid. It never imports torch.

A checkpoint is written under a temporary name and renamed when its manifest and all files are on disk. So a checkpoint
with its final name is complete. The manifest contains the size and sha256 of every file, and the step.

The hashes reveal damage. They do not reveal an attacker, who can write a manifest too: the safety of a load rests on
formats that contain no code, and on reading nothing but regular files of the checkpoint's own directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from torchyard.elastic.errors import ElasticError

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 16 << 20
FORMAT = "torchyard-checkpoint/2"
DCP_FORMAT = "torchyard-checkpoint/1"
"""What Torchyard 0.1 wrote."""
PREFIX = "step-"
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAME = re.compile(r"step-[0-9]{10,19}", re.ASCII)


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
        identity: the settings of the training; empty in older checkpoints.
        run: which run of the job has written it; empty in older checkpoints.
    """

    step: int
    job: str
    order: dict[str, Any]
    files: dict[str, FileRecord]
    sha256: str
    digest: str = ""
    format: str = FORMAT
    identity: dict[str, Any] = field(default_factory=dict)
    run: str = ""


def checkpoint_path(root: Path, step: int) -> Path:
    """Return the path of a step's checkpoint."""
    return root / f"{PREFIX}{step:010d}"


def foreign(path: Path, problem: str) -> ElasticError:
    """Return the error for a file that this runtime has not written."""
    return ElasticError(
        "ForeignCheckpoint",
        f"{path} is not a file of a checkpoint: {problem}",
        hint="pass a checkpoint that this runtime has written; nothing in the file was executed",
    )


def open_regular(path: Path) -> int:
    """Open a file for reading. A link, which may lead out of the checkpoint, or a device is refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise foreign(path, os.strerror(error.errno or 0)) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise foreign(path, "it is not a regular file")
    return handle


def read_regular(path: Path, limit: int) -> bytes:
    """Return the content of a file of at most `limit` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > limit:
            raise foreign(path, f"it has {size} bytes, more than {limit}")
        return file.read(limit)


def hash_file(path: Path) -> str:
    with os.fdopen(open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build_manifest(
    folder: Path,
    *,
    step: int,
    job: str,
    order: dict[str, Any],
    identity: dict[str, Any] | None = None,
    run: str = "",
) -> Manifest:
    """Hash all files of a checkpoint."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.name != MANIFEST)
    files: dict[str, FileRecord] = {
        name: {"size": (folder / name).stat().st_size, "sha256": hash_file(folder / name)} for name in names
    }
    total = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    return Manifest(step, job, order, files, total, identity=identity or {}, run=run)


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
    path = folder / MANIFEST
    if not path.exists():
        raise ElasticError(
            "ForeignCheckpoint", f"{folder} has no {MANIFEST}", hint="pass a directory that this runtime has written"
        )
    content = read_regular(path, LARGEST_MANIFEST)
    try:
        raw = json.loads(content)
        if raw.get("format") not in (FORMAT, DCP_FORMAT):
            raise ElasticError(
                "ForeignCheckpoint",
                f"{folder} has format {raw.get('format')!r}, not {FORMAT!r}",
                hint="pass a directory that this runtime has written",
            )
        manifest = Manifest(**raw)
        _check_manifest(manifest)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ElasticError(
            "DamagedCheckpoint", f"the manifest of {folder} is not valid: {error}", hint="use an older checkpoint"
        ) from error
    return manifest


def _check_manifest(manifest: Manifest) -> None:
    texts = (manifest.job, manifest.sha256, manifest.digest, manifest.run)
    if not _is_count(manifest.step) or not all(isinstance(text, str) for text in texts):
        raise ValueError("step, job, sha256, digest or run has the wrong type")
    if not all(isinstance(part, dict) for part in (manifest.order, manifest.files, manifest.identity)):
        raise TypeError("order, files and identity must be objects")
    for name, file in manifest.files.items():
        if not is_file_name(name) or name == MANIFEST:
            raise ValueError(f"{name!r} is not the name of a file in the checkpoint")
        if not _is_count(file["size"]) or not _SHA256.fullmatch(file["sha256"]):
            raise ValueError(f"the size or the hash of {name!r} is not valid")


def is_file_name(name: str) -> bool:
    """Return whether a name cannot lead out of its directory."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def verify(folder: Path) -> Manifest:
    """Read all files; raise if one differs from what was written."""
    manifest = read_manifest(folder)
    for name, file in manifest.files.items():
        path = folder / name
        if not os.path.lexists(path):
            _raise_damaged(f"{path} is missing")
        if (size := path.lstat().st_size) != file["size"] and not path.is_symlink():
            _raise_damaged(f"{path} has {size} bytes, but {file['size']} were written")
        if hash_file(path) != file["sha256"]:
            _raise_damaged(f"the content of {path} differs from what was written")
    return manifest


def _raise_damaged(problem: str) -> NoReturn:
    raise ElasticError("DamagedCheckpoint", problem, hint="use an older checkpoint")


def is_checkpoint_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def list_checkpoints(root: Path) -> list[Path]:
    """Return all complete checkpoints, oldest first."""
    folders = [entry for entry in root.glob(f"{PREFIX}*") if is_checkpoint_name(entry.name) and entry.is_dir()]
    return sorted(folders, key=lambda entry: (len(entry.name), entry.name))


def newest_valid(
    root: Path, on_skip: Callable[[Path, ElasticError], None] | None = None, *, run: str = ""
) -> tuple[Path, Manifest] | None:
    """Return the newest checkpoint that verifies. A damaged one is skipped, never repaired or removed.

    Args:
        root: the directory of the checkpoints.
        on_skip: called with every checkpoint that does not verify, and why.
        run: the run whose checkpoints count; empty for all.
    """
    for folder in reversed(list_checkpoints(root)):
        try:
            if not run or read_manifest(folder).run == run:
                return folder, verify(folder)
        except ElasticError as error:
            if on_skip is not None:
                on_skip(folder, error)
    return None


def lock_directory(folder: Path) -> int:
    """Lock a directory for as long as the returned descriptor is open."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # some network file systems cannot: then nothing is removed there
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def remove_abandoned(root: Path) -> list[Path]:
    """Remove incomplete checkpoints whose writer has died: nothing holds their lock."""
    removed = []
    for folder in root.glob(f"{PREFIX}*.writing"):
        if folder.is_symlink() or not folder.is_dir():
            continue
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        finally:
            os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(folder)
    return removed


def set_aside(root: Path, run: str) -> list[Path]:
    """Rename the checkpoints of other runs, so that they neither count nor hide those of this run."""
    renamed = []
    for folder in list_checkpoints(root):
        try:
            if read_manifest(folder).run == run:
                continue
        except ElasticError:
            pass  # a damaged checkpoint is not one of this run
        renamed.append(folder.rename(folder.with_name(f"{folder.name}.before-{run}")))
    return renamed


def prune(root: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` checkpoints; 0 keeps all."""
    removed = [folder for folder in list_checkpoints(root)[:-keep] if not folder.is_symlink()] if keep else []
    for folder in removed:
        shutil.rmtree(folder)
    return removed
