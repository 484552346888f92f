"""Bytes on disk below directories that a pod writes to.

A pod decides how many files there are, so the count runs in a process of its own, at the lowest priority: the agent's
event loop does not wait for it. Links are not followed, and other file systems are not entered.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time

COUNT_SECONDS = 30.0  # a count that takes longer ends with what it has counted: never more than there is
_SECONDS = 3 * COUNT_SECONDS


async def measure(paths: list[str]) -> dict[str, int] | None:
    """The bytes of each path, or fewer where there are very many files; None if they could not be counted."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", __file__, *paths),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        return None
    usage: dict[str, int] = json.loads(output)
    return usage


def count(path: str) -> int:
    """The blocks of everything below a directory; a file with several names counts once.

    Changes the working directory: the depth of a tree is then limited neither by open files nor by the length of paths.
    """
    try:
        _enter(path)
    except OSError:
        return 0
    here = os.stat(".")
    device, total, linked = here.st_dev, 0, set[int]()
    deadline = time.monotonic() + COUNT_SECONDS
    above: list[tuple[int, list[str]]] = []  # the inode of each directory on the way here, and its entries to come
    names = _entries()
    while True:
        while not names:
            if not above:
                return total
            inode, names = above.pop()
            os.chdir("..")
            here = os.stat(".")
            if here.st_ino != inode:
                return total  # the directory was moved meanwhile
        if time.monotonic() > deadline:
            return total
        name = names.pop()
        try:
            info = os.lstat(name)
            if info.st_dev != device or (info.st_nlink > 1 and info.st_ino in linked):
                continue
            total += info.st_blocks * 512
            if stat.S_ISDIR(info.st_mode):
                _enter(name)
                above.append((here.st_ino, names))
                here, names = os.stat("."), _entries()
            elif info.st_nlink > 1:
                linked.add(info.st_ino)
        except OSError:
            continue  # gone meanwhile


def _enter(path: str) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchdir(directory)
    finally:
        os.close(directory)


def _entries() -> list[str]:
    try:
        return os.listdir(".")
    except OSError:
        return []


if __name__ == "__main__":
    os.nice(19)
    print(json.dumps({path: count(path) for path in sys.argv[1:]}))
