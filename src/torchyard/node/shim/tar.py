"""The part of `tar` that `kubectl cp` uses, for containers whose image has none.

Runs in the container's own root, so links and `..` cannot lead out of the container. Supports `tar cf - PATH…` and
`tar xf - [-C DIR]` with the flags that kubectl adds; everything else is refused.
"""

from __future__ import annotations

import os
import sys
import tarfile


def main(argv: list[str]) -> int:
    try:
        return _run(argv[1:])
    except (OSError, tarfile.TarError, ValueError) as error:
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
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        # As tar does it. An attribute, because extract() has no filter argument before Python 3.11.4.
        archive.extraction_filter = lambda member, _path: member
        for member in archive:
            if not keep_time:
                member.mtime = 0
            if ".." in member.name.split("/"):
                raise ValueError(f"{member.name}: a path must not lead out of the directory")
            archive.extract(member, numeric_owner=keep_owner)
            if not keep_time and not member.issym():
                os.utime(member.name)
