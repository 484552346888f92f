"""Compiled code of this package in the user's cache directory, for installations where Python keeps none.

Python compiles a module once and keeps the result beside the source. It does not if PYTHONDONTWRITEBYTECODE is set or
the directory is read-only; every start then compiles every module of which no file is there, which takes longer than
the rest of the start. What was compiled is kept in one file here, read at once. An entry is valid for a source file of
the same modification time and size, as in Python's own files.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import sys
import time
import zlib
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from types import CodeType
from typing import Any

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_CHECKSUM_BYTES = 4
# Files of source trees that were not used for so long are removed.
_UNUSED_SECONDS = 30 * 86400


class BytecodeCache:
    """The code of the modules below a directory, in one file."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._entries = _read(file)
        self._added: dict[str, tuple[int, int, bytes]] = {}

    def code(self, path: str) -> CodeType | None:
        """The code of a source file; nothing if there is none, or the file has changed."""
        entry = self._entries.get(path)
        if entry is None:
            return None
        status = os.stat(path)
        if entry[:2] != (status.st_mtime_ns, status.st_size):
            return None
        code: CodeType = marshal.loads(entry[2])  # noqa: S302 - written by this user: see `_read`
        return code

    def add(self, path: str, status: os.stat_result, code: CodeType) -> None:
        """Keep the code of a source file, whose status was read before its content."""
        self._added[path] = (status.st_mtime_ns, status.st_size, marshal.dumps(code))

    def save(self) -> None:
        """Write what was compiled since the last call. Errors are ignored: without the file, modules are compiled."""
        added, self._added = self._added, {}
        if added:
            self._entries |= added
            with contextlib.suppress(OSError):
                _write(self._file, _read(self._file) | self._entries)


def _read(file: str) -> dict[str, tuple[int, int, bytes]]:
    """The entries of a file; none if it is missing or damaged, or another user can write it."""
    try:
        with open(file, "rb") as opened:
            status = os.fstat(opened.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return {}
            content = opened.read()
    except OSError:
        return {}
    checksum, body = content[:_CHECKSUM_BYTES], memoryview(content)[_CHECKSUM_BYTES:]
    if zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        return {}
    entries: dict[str, tuple[int, int, bytes]] = marshal.loads(body)  # noqa: S302 - written by this user
    return entries


def _write(file: str, entries: dict[str, tuple[int, int, bytes]]) -> None:
    directory = os.path.dirname(file)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    body = marshal.dumps(entries)
    temporary = f"{file}.{os.getpid()}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big"))
            opened.write(body)
        os.replace(temporary, file)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _remove_unused(directory)


def _remove_unused(directory: str) -> None:
    oldest = time.time() - _UNUSED_SECONDS
    with os.scandir(directory) as files:
        for file in files:
            if file.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(file.path)


class _CachedLoader(SourceFileLoader):
    cache: BytecodeCache

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        code = self.cache.code(path)
        if code is None:
            self._status = os.stat(path)
            code = super().get_code(fullname)  # from Python's own file, or compiled
        return code

    def source_to_code(self, data: Any, path: Any, *arguments: Any, **options: Any) -> CodeType:  # type: ignore[override]
        """Called only for what is compiled. The other arguments differ between versions of Python."""
        code: CodeType = super().source_to_code(data, path, *arguments, **options)
        self.cache.add(path, self._status, code)
        return code


_current: BytecodeCache | None = None


def enable() -> None:
    """Keep the compiled code of this package, unless Python does."""
    global _current  # noqa: PLW0603 - the import system is global too
    if _current is not None or sys.pycache_prefix is not None or _python_keeps_bytecode():
        return
    file = _default_file()
    if file:
        _current = BytecodeCache(file)
        install(_current, _PACKAGE)


def install(cache: BytecodeCache, package: str) -> None:
    """Import the modules below the directory `package` through the cache."""

    class Loader(_CachedLoader):
        pass

    Loader.cache = cache

    def finder(path: str) -> FileFinder:
        if path != package and not path.startswith(package + os.sep):
            raise ImportError
        return FileFinder(path, (Loader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, finder)
    for path in [path for path in sys.path_importer_cache if path == package or path.startswith(package + os.sep)]:
        del sys.path_importer_cache[path]


def save() -> None:
    """Write what this process has compiled so far. The process may be killed later."""
    if _current is not None:
        _current.save()


def _default_file() -> str:
    """The file in $XDG_CACHE_HOME or ~/.cache; nothing if the directory belongs to another user, as under `sudo`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = base if os.path.isabs(base) else os.path.expanduser("~")
    try:
        if os.stat(home).st_uid != os.geteuid():
            return ""
    except OSError:
        return ""
    root = home if home == base else os.path.join(home, ".cache")
    tree = zlib.crc32(os.fsencode(_PACKAGE))  # entries have whole paths: the same number for two trees does no harm
    name = f"{sys.implementation.cache_tag}-{importlib.util.MAGIC_NUMBER.hex()}-{sys.flags.optimize}-{tree:08x}"
    return os.path.join(root, "torchyard", "bytecode", name)


def _python_keeps_bytecode() -> bool:
    """Whether Python writes the code of the modules that it compiles."""
    directory = os.path.dirname(importlib.util.cache_from_source(__file__))
    return not sys.dont_write_bytecode and os.access(directory if os.path.isdir(directory) else _PACKAGE, os.W_OK)
