"""The part of `tar` that `kubectl cp` uses, for containers whose image has none.

Runs in the container's own root, so links and `..` cannot lead out of the container. Supports `tar cf - PATH…` and
`tar xf - [-C DIR]` with the flags that kubectl adds; everything else is refused.
"""

from __future__ import annotations

import os
import sys
import tarfile

_CHUNK = 1 << 20


def main(argv: list[str]) -> int:
    try:
        return _run(argv[1:])
    except (OSError, tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        os.write(2, f"tar: {error}\n".encode())
        return 2


def _run(arguments: list[str]) -> int:
    letters, paths, directory, skip_owner = "", [], ".", False
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        if not letters or (word.startswith("-") and not word.startswith("--") and word not in ("-", "-C")):
            letters += word.lstrip("-")
            if "f" in word and (not remaining or remaining.pop(0) != "-"):
                raise ValueError("only stdin and stdout are supported: use -f -")
        elif word == "-C":
            directory = remaining.pop(0)
        elif word in ("--no-same-owner", "--no-same-permissions"):
            skip_owner = True
        elif word.startswith("--"):
            raise ValueError(f"option {word} is not supported")
        else:
            paths.append(word)
    unknown = set(letters) - set("cxmfvp")
    if unknown or ("c" in letters) == ("x" in letters):
        raise ValueError(f"unsupported arguments: {' '.join(arguments)}; use 'cf - PATH' or 'xf -'")
    os.chdir(directory)
    if "c" in letters:
        _create(paths)
    else:
        _extract(keep_time="m" not in letters, keep_owner=not skip_owner and os.geteuid() == 0)
    return 0


def _create(paths: list[str]) -> None:
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            archive.add(path, arcname=path.lstrip("/") or ".")
    sys.stdout.buffer.flush()


def _extract(*, keep_time: bool, keep_owner: bool) -> None:
    links: set[str] = set()  # the symbolic links of this archive, which none of its other members may use
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        for member in archive:
            name = _checked_name(member.name, links)
            if name:
                _extract_member(archive, member, name, links, keep_owner=keep_owner)
                if not member.issym() and not member.islnk():
                    os.utime(name, (member.mtime, member.mtime) if keep_time else None, follow_symlinks=False)


def _checked_name(path: str, links: set[str]) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{path}: a path must not lead out of the directory")
    for count in range(1, len(parts)):
        if "/".join(parts[:count]) in links:
            raise ValueError(f"{path}: a path must not lead through a link of the archive")
    return "/".join(parts)


def _extract_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, links: set[str], *, keep_owner: bool
) -> None:
    """As tar does it: what stands in the way of a file is removed first, and not followed if it is a link."""
    if member.isdir():
        os.makedirs(name, exist_ok=True)
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
    else:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        if os.path.lexists(name):
            os.unlink(name)
        links.discard(name)
        if member.issym():
            os.symlink(member.linkname, name)
            links.add(name)
            return
        if member.islnk():
            os.link(_checked_name(member.linkname, links), name, follow_symlinks=False)
            return
        if not member.isreg():
            raise ValueError(f"{name}: devices and named pipes are not supported")
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        if member.isreg():
            _copy_content(archive, member, descriptor)
        if keep_owner:
            os.fchown(descriptor, member.uid, member.gid)
        os.fchmod(descriptor, member.mode & 0o7777)
    finally:
        os.close(descriptor)


def _copy_content(archive: tarfile.TarFile, member: tarfile.TarInfo, descriptor: int) -> None:
    source = archive.extractfile(member)
    while source and (block := source.read(_CHUNK)):
        view = memoryview(block)
        while view:
            view = view[os.write(descriptor, view) :]
