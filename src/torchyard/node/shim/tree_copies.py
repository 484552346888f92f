"""Copies of directories in a container's root, by descriptor: a template, and mount points beside an image's files."""

from __future__ import annotations

import errno
import os
import stat

from torchyard.node.shim import linux

_PATH = os.O_PATH | os.O_CLOEXEC
_COPY_SIZE = "64m"  # it has mount points only, and what the container writes beside them


def copy_tree(source: int, target: int) -> None:
    """Copy a template, where the file system of the node's state cannot have overlays."""
    for name in os.listdir(f"/proc/self/fd/{source}"):
        entry = os.open(name, _PATH | os.O_NOFOLLOW, dir_fd=source)
        status = os.fstat(entry)
        place = f"/proc/self/fd/{target}/{name}"
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink("", dir_fd=entry), place)
        elif stat.S_ISDIR(status.st_mode):
            os.mkdir(place)
            os.chmod(place, stat.S_IMODE(status.st_mode))
            below = os.open(place, _PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
            copy_tree(entry, below)
            os.close(below)
        else:
            with open(f"/proc/self/fd/{entry}", "rb") as original, open(place, "xb") as copy:
                copy.write(original.read())
            os.chmod(place, stat.S_IMODE(status.st_mode))
        os.close(entry)


def cover_with_copy(covered: int, parent: int) -> None:
    """Cover a directory with a tmpfs that has the same entries, each bind-mounted again, and room for more."""
    reader = os.open(f"/proc/self/fd/{covered}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        entries = os.listdir(reader)
    finally:
        os.close(reader)
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", f"/proc/self/fd/{covered}", "tmpfs", flags=flags, data=f"mode=755,size={_COPY_SIZE}")
    copy = _open_cover(covered, parent)
    try:
        for name in entries:
            source = os.open(name, _PATH | os.O_NOFOLLOW, dir_fd=covered)
            try:
                _copy_entry(source, name, copy)
            finally:
                os.close(source)
    finally:
        os.close(copy)


def _open_cover(covered: int, parent: int) -> int:
    """The file system that was just mounted over a directory of `parent`."""
    device = os.fstat(covered).st_dev
    name = os.path.basename(os.readlink(f"/proc/self/fd/{covered}"))
    cover = os.open(name, _PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    if os.fstat(cover).st_dev in (device, os.fstat(parent).st_dev):
        os.close(cover)
        raise OSError(errno.EXDEV, f"{name} changed while it was mounted")
    return cover


def _copy_entry(source: int, name: str, copy: int) -> None:
    mode = os.fstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink("", dir_fd=source), name, dir_fd=copy)
        return
    if stat.S_ISDIR(mode):
        os.mkdir(name, dir_fd=copy)
    else:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o666, dir_fd=copy))
    target = os.open(name, _PATH | os.O_NOFOLLOW, dir_fd=copy)
    try:
        linux.mount(f"/proc/self/fd/{source}", f"/proc/self/fd/{target}", flags=linux.MS_BIND | linux.MS_REC)
    finally:
        os.close(target)
