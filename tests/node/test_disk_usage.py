"""Counting what a pod has on disk: hostile trees neither hide bytes nor lead the count outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchyard.node.resources import disk_usage
from torchyard.node.volumes.ownership import FsGroup


async def bytes_of(path: Path) -> int:
    usage = await disk_usage.measure([str(path)])
    assert usage is not None
    return usage[str(path)]


async def test_files_with_several_names_count_once_and_links_are_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "large").write_bytes(bytes(4 << 20))
    (inside / "file").write_bytes(bytes(1 << 20))
    for number in range(5):
        (inside / f"name{number}").hardlink_to(inside / "file")
    (inside / "link").symlink_to(outside)
    (inside / "self").symlink_to(inside)
    assert 1 << 20 <= await bytes_of(inside) < 2 << 20
    assert await bytes_of(tmp_path / "missing") == 0
    assert await bytes_of(inside / "link") == 0


async def test_a_very_deep_tree_hides_nothing(tmp_path: Path) -> None:
    """Deeper than the number of open files and the length of a path."""
    top = os.open(tmp_path, os.O_RDONLY)
    depth, directory = 3000, os.dup(top)
    for _ in range(depth):
        os.mkdir("d" * 20, dir_fd=directory)
        deeper = os.open("d" * 20, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = deeper
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=directory)
    os.write(file, bytes(1 << 20))
    for descriptor in (file, directory, top):
        os.close(descriptor)
    try:
        assert await bytes_of(tmp_path) >= 1 << 20
    finally:
        os.system(f"rm -rf {tmp_path}/d*")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to groups")
def test_the_group_is_not_given_to_files_outside_the_volume(tmp_path: Path) -> None:
    volume, secret = tmp_path / "volume", tmp_path / "secret"
    volume.mkdir()
    secret.write_text("x")
    secret.chmod(0o600)
    (volume / "link").symlink_to(secret)
    (volume / "directory").symlink_to(tmp_path)
    os.mkfifo(volume / "pipe")
    (volume / "file").write_text("y")
    (volume / "file").chmod(0o600)
    FsGroup(4321).apply(volume, read_only=False)
    assert (secret.stat().st_gid, secret.stat().st_mode & 0o7777) == (os.getegid(), 0o600)
    assert tmp_path.stat().st_gid == os.getegid()
    assert ((volume / "file").stat().st_gid, (volume / "file").stat().st_mode & 0o7777) == (4321, 0o660)
    assert (volume.stat().st_gid, volume.stat().st_mode & 0o7070) == (4321, 0o2070)
    before = (volume / "file").stat().st_ctime_ns
    FsGroup(4321, on_root_mismatch=True).apply(volume, read_only=False)
    assert (volume / "file").stat().st_ctime_ns == before
