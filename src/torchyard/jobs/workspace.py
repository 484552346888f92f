"""Packs the folder of a script, so that pods can run it."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.core.run.script_job import ARCHIVE_LIMIT
from torchyard.jobs.text_files import read_text
from torchyard.node.images.dockerignore import DockerIgnore

IGNORE_FILES = (".yardignore", ".dockerignore")
# Directories that no program needs at another place: histories, caches, environments.
_NEVER = frozenset(
    (".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".ruff_cache")
)


def pack(directory: Path, extra: Mapping[str, str] | None = None) -> bytes:
    """The files of a directory as a compressed tar archive, and `extra` ones. The same files give the same bytes."""
    buffer = io.BytesIO()
    sizes: dict[str, int] = {}
    total = 0
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w|") as archive,
    ):
        for path in files_of(directory):
            try:
                size = (directory / path).lstat().st_size
                sizes[path.as_posix()] = size
                total += size
                if total > 20 * ARCHIVE_LIMIT:  # it cannot become small enough
                    raise _too_large(directory, sizes, "more than")
                _add(archive, directory, path)
            except OSError as error:
                raise _not_packed(path, error) from error
        for name, text in (extra or {}).items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    packed = buffer.getvalue()
    if len(packed) > ARCHIVE_LIMIT:
        raise _too_large(directory, sizes, f"{len(packed) / 1e6:.1f} MB when packed, more than")
    return packed


def files_of(directory: Path) -> list[Path]:
    """The files to pack, sorted: all but what .yardignore, .dockerignore or, in a Git work tree, .gitignore excludes.

    Only the first of the ignore files is read.
    """
    ignore_file = next((directory / name for name in IGNORE_FILES if (directory / name).is_file()), None)
    ignore = DockerIgnore.read(read_text(ignore_file) if ignore_file else "")
    tracked = _git_files(directory)
    paths = _walk(directory, ignore) if tracked is None else tracked
    return sorted(
        path
        for path in paths
        if not ignore.excludes(path) and not _NEVER & set(path.parts) and _is_file(directory, path)
    )


def _is_file(directory: Path, path: Path) -> bool:
    """Whether a path is a file or a link; a file that Git lists may be deleted."""
    full = directory / path
    return full.is_symlink() or full.is_file()


def _git_files(directory: Path) -> list[Path] | None:
    """The files that Git would not ignore, also those of repositories below; None outside a work tree or without git.

    The owner of the folder does not matter: nothing of its configuration is run.
    """
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", str(directory)]
    command += ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=False)
    if listed.returncode != 0:
        return None
    files: list[Path] = []
    for path in {Path(os.fsdecode(name)) for name in listed.stdout.split(b"\0") if name}:
        inner = directory / path
        if (inner / ".git").exists() and not inner.is_symlink():  # a submodule, or a clone: Git lists its folder only
            files += [path / file for file in _git_files(inner) or ()]
        else:
            files.append(path)
    return files


def _walk(directory: Path, ignore: DockerIgnore) -> Iterator[Path]:
    for base, directories, names in os.walk(directory):
        here = Path(base).relative_to(directory)
        directories[:] = [
            name for name in directories if name not in _NEVER and not ignore.excludes(here / name, directory=True)
        ]
        links = [name for name in directories if (Path(base) / name).is_symlink()]
        for name in (*names, *links):
            yield here / name


def _add(archive: tarfile.TarFile, directory: Path, path: Path) -> None:
    """Add a file or a link with the same owner and time, whoever packs it and whenever."""
    full = directory / path
    status = full.lstat()
    entry = tarfile.TarInfo(path.as_posix())
    entry.mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        link = full.readlink()
        target = (full.parent / link).resolve()
        if not target.is_relative_to(directory.resolve()):
            raise YardError(
                f"{path} is a link that leads out of {directory}",
                hint=f"copy the file, or exclude the link in {IGNORE_FILES[0]}",
                code="BadScript",
            )
        if link.is_absolute():  # the folder has another path in the pods
            link = Path(os.path.relpath(target, full.parent.resolve()))
        entry.type, entry.linkname = tarfile.SYMTYPE, str(link)
        archive.addfile(entry)
    elif stat.S_ISREG(status.st_mode):
        with full.open("rb") as content:
            entry.size = os.fstat(content.fileno()).st_size
            archive.addfile(entry, content)


def _not_packed(path: Path, error: OSError) -> YardError:
    has_changed = isinstance(error, FileNotFoundError) or error.errno is None
    reason = "it changed while it was copied" if has_changed else str(error.strerror)
    return YardError(
        f"{path} cannot be copied to the pods: {reason}", hint=f"exclude it in {IGNORE_FILES[0]}", code="BadScript"
    )


def _too_large(directory: Path, sizes: dict[str, int], problem: str) -> YardError:
    largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    names = ", ".join(f"{name} ({sizes[name] / 1e6:.1f} MB)" for name in largest)
    return YardError(
        f"the folder {directory} is {problem} the {ARCHIVE_LIMIT / 1e6:.0f} MB of its ConfigMaps; largest: {names}",
        hint=f"exclude data in {IGNORE_FILES[0]} and mount it from a volume, or build an image and run a manifest",
        code="WorkspaceTooLarge",
    )
