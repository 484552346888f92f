"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `target` at the end.

    It has no name before, so that nothing is left of it if the process is killed.
    """
    name = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    mode = 0o666 & ~_umask()
    try:
        descriptor = os.open(target.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode)
    except OSError:  # not every file system has files without a name
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=name.name) as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.link(file.name, name)
    else:
        with os.fdopen(descriptor, "w+b") as unnamed:
            yield unnamed
            unnamed.flush()
            _give_name(descriptor, name)
    name.replace(target)


def _give_name(descriptor: int, name: Path) -> None:
    directory = os.open(name.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # with a descriptor, Python uses linkat(2), which follows the link in /proc
        os.link(f"/proc/self/fd/{descriptor}", name.name, dst_dir_fd=directory, follow_symlinks=True)
    finally:
        os.close(directory)


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
