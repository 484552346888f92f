"""Files of the container: of its image or of a volume (`file://`), or of a claim that is mounted for it (`pvc://`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from torchyard.initializer.brought_files import replacing
from torchyard.initializer.request import CLAIM_DIRECTORY, InitializerRequest


def bring_files(request: InitializerRequest, target: Path, *, claims: Path = CLAIM_DIRECTORY) -> int:
    """Copy a file or a directory; returns the number of files. A file that is there already is replaced as a whole."""
    source = _source(request, claims)
    if source.is_file():
        pairs = [(source, target / source.name)]
    elif source.is_dir():
        pairs = [(path, target / path.relative_to(source)) for path in _files_below(source)]
    else:
        fix = "mount the volume that has it into the initializer's container, or correct the path"
        raise request.error(f"names {source}, which does not exist in the container", fix)
    wanted = [(path, copy) for path, copy in pairs if not request.is_ignored(str(copy.relative_to(target)))]
    if not wanted:
        raise request.error(f"names {source}, which has no files", "correct the path, or IGNORE_PATTERNS")
    if request.scheme == "pvc":
        _require_inside(request, [path for path, _ in wanted], claims)
    for path, copy in wanted:
        _copy(request, path, copy)
    return len(wanted)


def _source(request: InitializerRequest, claims: Path) -> Path:
    if request.scheme == "file":
        if request.location not in ("", "localhost"):
            fix = f"write three slashes: file:///{request.location}/{request.path}"
            raise request.error(f"names the machine {request.location!r}", fix)
        return Path("/") / request.path
    if not claims.is_dir():
        fix = "let the TrainJob controller of Torchyard mount it, or mount the claim and use file://"
        raise request.error(f"needs the claim {request.location!r} at {claims}, where nothing is mounted", fix)
    if ".." in Path(request.path).parts:
        raise request.error("leads out of its claim", "remove .. from the path")
    return claims / request.path


def _require_inside(request: InitializerRequest, paths: list[Path], claims: Path) -> None:
    """A claim may be another user's: its links must not bring files of this container, such as its tokens."""
    inside = claims.resolve()
    for path in paths:
        if not path.resolve().is_relative_to(inside):
            fix = "replace the link by the file, or add it to IGNORE_PATTERNS"
            raise request.error(f"has the link {path.relative_to(claims)}, which leads out of its claim", fix)


def _files_below(directory: Path) -> Iterator[Path]:
    """Files and links to files. Links to directories are not followed: they may lead in a circle.

    Nor is what lies behind the links of a volume of a ConfigMap or Secret: it would be brought twice.
    """
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith(".."))
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_file():
                yield path


def _copy(request: InitializerRequest, source: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(copy) as partial:
            shutil.copyfile(source, partial)
    except OSError as error:
        reason = f"cannot be copied: {error.strerror or error} ({error.filename or source})"
        raise request.error(reason, "make the file readable, or the volume larger") from error
