"""The part of `tar` that `kubectl cp` uses, for containers whose image has none.

Runs inside the container's own root, so what a link or a `..` names can only be the container's. Supports
`tar cf - PATH…` and `tar xf - [-C DIR]` with the flags kubectl adds; everything else is refused.
"""

from __future__ import annotations

import os
import sys
import tarfile


def main(argv: list[str]) -> int:
    try:
        return _run(argv[1:])
    except (OSError, tarfile.TarError, ValueError) as failed:
        os.write(2, f"tar: {failed}\n".encode())
        return 2


def _run(arguments: list[str]) -> int:
    letters, paths, directory, skip_owner = "", [], ".", False
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if not letters or (word.startswith("-") and not word.startswith("--") and word not in ("-", "-C")):
            letters += word.lstrip("-")
            if "f" in word and (not waiting or waiting.pop(0) != "-"):
                raise ValueError("only the standard streams are read and written")
        elif word == "-C":
            directory = waiting.pop(0)
        elif word in ("--no-same-owner", "--no-same-permissions"):
            skip_owner = True
        elif word.startswith("--"):
            raise ValueError(f"option {word} is not supported")
        else:
            paths.append(word)
    unknown = set(letters) - set("cxmfvp")
    if unknown or ("c" in letters) == ("x" in letters):
        raise ValueError(f"cannot do {' '.join(arguments)}: only 'cf - PATH' and 'xf -' are supported")
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
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        # As tar does it; an attribute, because Pythons before 3.11.4 know no filters.
        archive.extraction_filter = lambda member, _path: member
        for member in archive:
            if not keep_time:
                member.mtime = 0
            if ".." in member.name.split("/"):
                raise ValueError(f"{member.name}: a path must not leave the directory")
            archive.extract(member, numeric_owner=keep_owner)
            if not keep_time and not member.issym():
                os.utime(member.name)
