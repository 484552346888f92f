"""What was brought to a directory, so that another URI replaces it and leaves the files of others alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

# Has the URI of what was brought completely, and its files.
MARKER = ".torchyard-initialized"
_INCOMING = ".torchyard-incoming-"


@dataclass(frozen=True, slots=True)
class BroughtFiles:
    """The `uri` is empty until all files are in their places.

    `files` has the size of each and when it was changed: what a program has written since was not brought.
    """

    uri: str = ""
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def read_marker(target: Path) -> BroughtFiles:
    """Empty if there is no marker, or not one of this program: then nothing is known about the files."""
    try:
        record = json.loads((target / MARKER).read_text())
        return BroughtFiles(record["uri"], {name: (size, time) for name, (size, time) in record["files"].items()})
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return BroughtFiles()


def remove_brought(target: Path, brought: BroughtFiles) -> None:
    """Remove the files that are still as they were brought, and the directories that are empty then."""
    root = target.resolve()
    for name, stamp in brought.files.items():
        path = target / name
        directory = path.parent.resolve()
        # The volume is shared: neither a link nor a marker that was changed leads out of it.
        if not directory.is_relative_to(root) or not path.is_file() or _stamp(path) != stamp:
            continue
        path.unlink()
        while directory != root and not any(directory.iterdir()):
            directory.rmdir()
            directory = directory.parent
    (target / MARKER).unlink(missing_ok=True)


def incoming_directory(target: Path, uri: str) -> Path:
    """Where the files of a URI are put until all are there. What an interrupted attempt left of this URI stays."""
    incoming = target / f"{_INCOMING}{sha256(uri.encode()).hexdigest()[:16]}"
    for directory in target.glob(f"{_INCOMING}*"):
        if directory != incoming:
            shutil.rmtree(directory)
    incoming.mkdir(exist_ok=True)
    return incoming


def move_into_place(incoming: Path, target: Path, uri: str) -> None:
    """The marker has the files before the first is moved: an interruption leaves none that is not known."""
    paths = [path for path in incoming.rglob("*") if path.is_file()]
    files = {str(path.relative_to(incoming)): _stamp(path) for path in paths}
    _write_marker(target, BroughtFiles("", files))
    for name in files:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (incoming / name).replace(path)
    shutil.rmtree(incoming)
    _write_marker(target, BroughtFiles(uri, files))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield where to write a file, which then replaces the one at the path as a whole, or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    yield partial
    partial.replace(path)


def _write_marker(target: Path, brought: BroughtFiles) -> None:
    partial = target / f"{MARKER}.partial"
    partial.write_text(json.dumps({"uri": brought.uri, "files": brought.files}))
    partial.replace(target / MARKER)


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
