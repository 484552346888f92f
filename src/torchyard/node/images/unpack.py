"""Unpacks archives of layers. Nothing in an archive is trusted.

Names and links are followed inside the tree only, devices are left out, and what an archive may take is limited: bytes,
files, and the size of its headers, which Python's `tarfile` reads into memory as a whole.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import re
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from torchyard.node.images import tree
from torchyard.node.images.model import ImageError
from torchyard.node.shim import beneath

WHITEOUT, OPAQUE_WHITEOUT = ".wh.", ".wh..wh..opq"
_MAX_HEADER, _CHUNK = 64 << 10, 1 << 20
_MAX_PATH, _MAX_DEPTH, _MAX_ID = 4096, 200, (1 << 32) - 2
_MAX_BYTES, _MAX_FILES, _SHARE_OF_DISK = 1 << 40, 1_000_000, 0.9
_LONG_NUMBER = re.compile(rb"[0-9]{64}")  # takes tarfile's own patterns quadratic time
_DAMAGED = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, RecursionError, ValueError, OverflowError)
_COMPRESSED = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))
_ZSTD = b"\x28\xb5\x2f\xfd"


class BadArchive(ImageError):
    """The archive is damaged, or contains what an image must not."""

    code = "BadImage"


class BoundedReader:
    """A stream for `tarfile`. Outside of a file's content, no read may be larger than a header."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.in_content = False
        self._header_bytes = 0  # of the current member

    def read(self, size: int = -1) -> bytes:
        if self.in_content:
            return self._stream.read(size)
        self._header_bytes += max(size, 0)
        if size < 0 or self._header_bytes > _MAX_HEADER:
            raise BadArchive(f"a header of the archive has more than {_MAX_HEADER} bytes")
        data = self._stream.read(size)
        if size > tarfile.BLOCKSIZE and _LONG_NUMBER.search(data):
            raise BadArchive("a header of the archive is not valid")
        return data

    def next_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        self._header_bytes = 0
        return archive.next()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True


@dataclass(slots=True)
class Budget:
    """What may still be unpacked."""

    bytes: int
    files: int

    @classmethod
    def for_disk(cls, directory: Path) -> Budget:
        """Most of what the disk has left, and never more than the largest image."""
        free = shutil.disk_usage(directory).free
        inodes = os.statvfs(directory).f_favail or _MAX_FILES  # some file systems do not count them
        return cls(min(int(free * _SHARE_OF_DISK), _MAX_BYTES), min(int(inodes * _SHARE_OF_DISK), _MAX_FILES))

    def take(self, member: tarfile.TarInfo) -> None:
        self.files -= 1
        self.bytes -= max(member.size, 0)
        if self.files < 0:
            raise BadArchive(f"{member.name[:80]}: the image has more files than this node can hold")
        if self.bytes < 0:
            raise BadArchive(
                f"{member.name[:80]}: the image is larger than this node can hold",
                hint="make room on the disk of the state directory",
            )


@contextlib.contextmanager
def opened(stream: IO[bytes]) -> Iterator[tuple[tarfile.TarFile, BoundedReader]]:
    """An archive, compressed or not. Whatever is wrong with it raises BadArchive."""
    try:
        start = stream.read(6)
        stream.seek(-len(start), os.SEEK_CUR)
        if start.startswith(_ZSTD):
            raise BadArchive(
                "archives compressed with zstd are not supported", hint="save it with gzip or uncompressed"
            )
        decompress = next((function for magic, function in _COMPRESSED if start.startswith(magic)), None)
        content = cast("IO[bytes]", decompress(stream)) if decompress else stream
        reader = BoundedReader(content)
        with tarfile.TarFile(fileobj=reader, mode="r") as archive:  # type: ignore[arg-type]  # what it uses of a file
            yield archive, reader
    except _DAMAGED as error:
        raise BadArchive(f"the archive is damaged: {error or type(error).__name__}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise BadArchive(f"the archive is damaged: {error}") from error  # what gzip and bz2 raise


def is_archive(path: Path) -> bool:
    try:
        with path.open("rb") as stream, opened(stream) as (archive, reader):
            return reader.next_member(archive) is not None
    except (BadArchive, OSError):
        return False


def unpack(stream: IO[bytes], directory: Path, budget: Budget | None = None) -> None:
    """Unpack an archive over a tree; neither its paths nor its links can lead out of it."""
    budget = budget or Budget.for_disk(directory)
    with opened(stream) as (archive, reader), tree.opened(directory) as root:
        while (member := reader.next_member(archive)) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # otherwise they stay in memory
            budget.take(member)
            try:
                _Member(archive, reader, member, root).unpack()
            except OSError as error:
                raise BadArchive(f"{_shown(member)} cannot be unpacked: {error.strerror or error}") from error


def _shown(member: tarfile.TarInfo) -> str:
    return member.name if len(member.name) <= 80 else f"{member.name[:80]}…"


class _Member:
    def __init__(self, archive: tarfile.TarFile, reader: BoundedReader, member: tarfile.TarInfo, root: int) -> None:
        self._archive, self._reader, self._member, self._root = archive, reader, member, root

    def unpack(self) -> None:
        parts = _parts(self._member, self._member.name)
        if not parts:
            return
        parent = self._open_parent(parts)
        try:
            self._unpack(parts[-1], parent)
        finally:
            os.close(parent)

    def _open_parent(self, parts: list[str]) -> int:
        """Links on the way are followed as the container would; what is missing is created."""
        opened = beneath.make_directories(self._root, "/".join(parts[:-1]), in_root=True)
        try:
            return os.open(f"/proc/self/fd/{opened}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(opened)

    def _unpack(self, name: str, parent: int) -> None:
        member = self._member
        if name == OPAQUE_WHITEOUT:
            for entry in sorted(os.listdir(parent)):
                tree.remove(entry, parent)
        elif name.startswith(WHITEOUT):
            removed = name.removeprefix(WHITEOUT)
            if removed in ("", ".", ".."):
                raise BadArchive(f"{_shown(member)}: a whiteout must name a file")
            tree.remove(removed, parent)
        elif member.isdir():
            tree.make_directory(name, parent)
            with tree.opened(name, parent) as directory:
                self._set_attributes(directory)
        elif member.issym():
            tree.remove(name, parent)
            os.symlink(member.linkname, name, dir_fd=parent)
            if os.geteuid() == 0:
                os.chown(name, *self._owner(), dir_fd=parent, follow_symlinks=False)
        elif member.islnk():
            self._link(name, parent)
        elif member.isfifo():
            tree.remove(name, parent)
            os.mkfifo(name, member.mode & 0o7777, dir_fd=parent)
        elif member.isreg():
            tree.remove(name, parent)
            self._write(name, parent)
        # the sandbox provides device files, not the image

    def _link(self, name: str, parent: int) -> None:
        """A hard link to a file of the tree. Mode and owner are the other name's."""
        parts = _parts(self._member, self._member.linkname)
        if not parts:
            raise BadArchive(f"{_shown(self._member)}: a hard link must name a file of the image")
        other = self._open_parent(parts)
        try:
            status = os.stat(parts[-1], dir_fd=other, follow_symlinks=False)
            if beneath.same_file(other, parent) and parts[-1] == name:
                return
            if stat.S_ISDIR(status.st_mode):
                raise BadArchive(f"{_shown(self._member)}: a hard link must name a file of the image")
            tree.remove(name, parent)
            os.link(parts[-1], name, src_dir_fd=other, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(other)

    def _write(self, name: str, parent: int) -> None:
        source = self._archive.extractfile(self._member)
        writer = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
        self._reader.in_content = True
        try:
            while source and (block := source.read(_CHUNK)):
                view = memoryview(block)
                while view:
                    view = view[os.write(writer, view) :]
            self._set_attributes(writer)
        finally:
            self._reader.in_content = False
            os.close(writer)

    def _set_attributes(self, descriptor: int) -> None:
        if os.geteuid() == 0:
            os.fchown(descriptor, *self._owner())
        os.fchmod(descriptor, self._member.mode & 0o7777)  # after the owner, whose change clears the setuid bit
        os.utime(descriptor, (max(self._member.mtime, 0),) * 2)

    def _owner(self) -> tuple[int, int]:
        member = self._member
        if not (0 <= member.uid <= _MAX_ID and 0 <= member.gid <= _MAX_ID):
            raise BadArchive(f"{_shown(member)}: the owner {member.uid}:{member.gid} is not valid")
        return member.uid, member.gid


def _parts(member: tarfile.TarInfo, path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise BadArchive(f"{_shown(member)}: a path of an image must not lead out of it")
    if len(os.fsencode(path)) >= _MAX_PATH or len(parts) > _MAX_DEPTH:
        limits = f"{_MAX_PATH} bytes and at most {_MAX_DEPTH} directories"
        raise BadArchive(f"{_shown(member)}: a path of an image must have less than {limits}")
    return parts
