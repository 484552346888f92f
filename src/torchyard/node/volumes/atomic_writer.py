"""Writes config maps, secrets and so on so that a reader sees the old content or the new one, never a mixture.

As the kubelet's AtomicWriter: the files are in a directory of their own, `..data` is a link to it, and the visible
names are links through `..data`. An update is one rename.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torchyard import files
from torchyard.node.volumes.ownership import FsGroup


class FileProjection(NamedTuple):
    content: bytes
    mode: int
    uid: int | None = None  # the owner; None: the node's own user


def write(
    volume: Path, projections: Mapping[str, FileProjection], group: FsGroup | None = None, *, mode: int = 0o755
) -> bool:
    """Make the volume hold exactly `projections`, which belong to the group; False when it already did.

    `mode` is that of the volume's top directory.
    """
    if not volume.is_dir():
        volume.mkdir(parents=True)
        volume.chmod(mode)
    link = volume / "..data"
    if group is not None:
        readable = stat.S_IRUSR | stat.S_IRGRP
        projections = {
            name: projection._replace(mode=projection.mode | readable) for name, projection in projections.items()
        }
    if link.is_symlink() and _holds(link, projections):
        return False
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=volume))
    fresh.chmod(0o755)
    for name, projection in projections.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(projection.content)
        path.chmod(projection.mode)
        if projection.uid is not None:
            os.chown(path, projection.uid, -1)
    if group is not None:
        group.apply(volume, read_only=True)
    before = volume / link.readlink().name if link.is_symlink() else None  # never anything outside
    swap = volume / "..data_tmp"
    swap.unlink(missing_ok=True)
    swap.symlink_to(fresh.name)
    swap.replace(link)
    _link_names(volume, {name.split("/")[0] for name in projections})
    if before:
        files.remove_tree(before)
    return True


def _holds(link: Path, projections: Mapping[str, FileProjection]) -> bool:
    present = {str(path.relative_to(link)) for path in link.rglob("*") if path.is_file()}
    return present == set(projections) and all(
        (link / name).read_bytes() == projection.content and (link / name).stat().st_mode & 0o777 == projection.mode
        for name, projection in projections.items()
    )


def _link_names(volume: Path, names: set[str]) -> None:
    for entry in volume.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    for name in names:
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(f"..data/{name}")
