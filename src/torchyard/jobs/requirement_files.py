"""What a list of requirements refers to: further files, directories and archives of this machine, and pip's options."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from torchyard.core.run.requirements import file_requirements

_FILE = re.compile(r"(?:-r|-c|--requirement|--constraint)[\s=]*(?P<path>.+)")
_EDITABLE = re.compile(r"(?:-e|--editable)[\s=]*(?P<path>.+)")
# Behind a path: extras, a marker, a fragment, options of the requirement.
_AFTER_PATH = re.compile(r"(?:\[[^\]]*\])?\s*(?:;.*|#.*|\s--.*)?$")
_ARCHIVES = (".whl", ".tar.gz", ".zip")
# What builds and runs write beside the sources.
_OUTPUTS = ("__pycache__", "build", "dist", "node_modules")


def pip_options(requirements: list[str], directory: Path) -> list[str]:
    """The lines that say where and how pip looks for packages, such as `--index-url`, also those of further files."""
    return [
        line
        for line, _ in _lines(requirements, directory, set())
        if line.startswith("-")
        and not _FILE.fullmatch(line)
        and not _EDITABLE.fullmatch(line)
        and line != "--require-hashes"  # checked when the versions are chosen
    ]


def changed_times(requirements: list[str], directory: Path) -> list[tuple[str, int]]:
    """The files that the requirements refer to, and when they changed: with another file, it is another list."""
    paths: set[Path] = set()
    for line, base in _lines(requirements, directory, set()):
        path = _local_path(line)
        # as pip does it: further files beside the one that names them, packages from the working directory
        paths |= {base / path, directory / path} if path else set()
    times = {(str(file), _changed(file)) for path in paths for file in _files(path)}
    return sorted(times)


def _lines(requirements: list[str], directory: Path, read: set[Path]) -> Iterator[tuple[str, Path]]:
    """Every line with the directory of its file."""
    for line in requirements:
        yield line, directory
        match = _FILE.fullmatch(line)
        file = (directory / match["path"]).resolve() if match else directory
        if file.is_file() and file not in read:
            read.add(file)
            yield from _lines(file_requirements(file.read_text(errors="replace")), file.parent, read)


def _local_path(line: str) -> str:
    """The path that a line names; '' if it names a package of an index."""
    match = _FILE.fullmatch(line) or _EDITABLE.fullmatch(line)
    text = match["path"] if match else line.partition("@")[2].strip() or line
    path = _AFTER_PATH.sub("", text.removeprefix("file://").removeprefix("file:"))
    is_local = match or path.startswith(".") or "/" in path or path.endswith(_ARCHIVES)
    return path if is_local and "://" not in path and not path.startswith("-") else ""


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for directory, names, files in os.walk(path):
        names[:] = [name for name in names if not name.startswith(".") and not _is_output(name)]
        yield from (Path(directory, file) for file in files if not file.startswith("."))


def _is_output(name: str) -> bool:
    return name in _OUTPUTS or name.endswith(".egg-info")


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:  # a broken link, or a file that was removed just now
        return 0
