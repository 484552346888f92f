"""Writes an image as an OCI archive for `ctr image import`, `docker load` and `podman load`.

An image that was built on the machine's own programs can include them as its lowest layer. It then needs nothing of the
node that it is loaded on. They take gigabytes, so that somebody has to ask for them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, cast

from torchyard.api.objects import Object
from torchyard.node.images import tree
from torchyard.node.images.atomic_file import replacing
from torchyard.node.images.model import Image, ImageError, full_name
from torchyard.node.images.store import ImageStore
from torchyard.node.images.unpack import OPAQUE_WHITEOUT, WHITEOUT
from torchyard.node.runtime.rootfs_steps import CONFIGURATION, SYSTEM

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


_BLOB = "blobs/sha256/"
_REPORT_BYTES = 64 << 20  # progress is reported after so many

Report = Callable[[int, int], None]  # (bytes packed, bytes in total)


def save(
    store: ImageStore, name: str, target: Path, *, with_machine: bool | None = None, report: Report | None = None
) -> Path:
    """Write the archive. `with_machine` includes the programs and the Python environment of a mapped base image.

    None refuses such an image, with the size that its archive would have.
    """
    image = store.resolve(name)
    if not target.parent.is_dir():
        raise ImageError(f"directory {target.parent} does not exist", code="CannotSave")
    machine = machine_paths(image) if image.root.machine and with_machine is not False else []
    total = sum(_size(path) for path in machine)
    if machine and with_machine is None:
        raise ImageError(
            f"image {name} is built on the programs of this machine, which take {total / 1e9:.1f} GB in an archive",
            hint="--with-machine includes them; --layers-only saves the image's own layers, to put on another base",
            code="NeedsMachine",
        )
    _check_space(target, total)
    with replacing(target) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        progress = _Progress(total, report)
        packs = [partial(_pack, machine, progress)] if machine else []
        packs += [partial(_pack_tree, layer) for layer in image.root.layers]
        layers = [_add_layer(archive, file, pack) for pack in packs]
        _write_layout(archive, layers, image.config.as_dict(), full_name(name))
    return target


def machine_paths(image: Image) -> list[Path]:
    """The files and directories of the machine that containers of a mapped image see, each of them once."""
    paths = [Path("/") / name for name in (*SYSTEM, *(f"etc/{file}" for file in CONFIGURATION))]
    existing = [path for path in (*paths, *image.root.prefixes) if path.exists() or path.is_symlink()]
    directories = [path for path in existing if not path.is_symlink()]
    return [path for path in dict.fromkeys(existing) if not any(other in path.parents for other in directories)]


def _size(path: Path) -> int:
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    total = 0
    for base, _, names in os.walk(path):
        for name in names:
            total += os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118 - hundreds of thousands of files
    return total


def _check_space(target: Path, size: int) -> None:
    status = os.statvfs(target.parent)
    free = status.f_bavail * status.f_frsize
    if size > free:
        raise ImageError(
            f"the archive takes {size / 1e9:.1f} GB, and {target.parent} has {free / 1e9:.1f} GB free",
            hint="name a file on another disk with -o, or save only the image's own layers with --layers-only",
            code="CannotSave",
        )


class _Progress:
    """Reports how many bytes are packed, now and then."""

    def __init__(self, total: int, report: Report | None) -> None:
        self._total, self._report = total, report
        self._done = self._reported = 0

    def add(self, size: int) -> None:
        self._done += size
        if self._report and self._done - self._reported >= _REPORT_BYTES:
            self._reported = self._done
            self._report(self._done, self._total)


def _pack(paths: list[Path], progress: _Progress, archive: tarfile.TarFile) -> None:
    def as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        progress.add(member.size)
        return member

    for path in paths:
        archive.add(path, arcname=str(path.relative_to("/")), filter=as_root)


def _pack_tree(layer: Path, archive: tarfile.TarFile) -> None:
    """A layer with its whiteouts as the files that stand for them in an OCI layer."""
    with tree.opened(layer) as root:
        _add_directory(archive, root, layer, "")


def _add_directory(archive: tarfile.TarFile, directory: int, path: Path, prefix: str) -> None:
    if tree.is_opaque(directory):
        _add(archive, f"{prefix}{OPAQUE_WHITEOUT}", b"")
    for name in sorted(os.listdir(directory)):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if tree.is_whiteout(status):
            _add(archive, f"{prefix}{WHITEOUT}{name}", b"")
        else:
            archive.add(path / name, arcname=f"{prefix}{name}", recursive=False, filter=_with_owner)
            if stat.S_ISDIR(status.st_mode):
                with tree.opened(name, directory) as below:
                    _add_directory(archive, below, path / name, f"{prefix}{name}/")


def _with_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Files of the user who built or loaded the image are root's, as in the container; others keep their number."""
    member.uid = 0 if member.uid == os.geteuid() else member.uid
    member.gid = 0 if member.gid == os.getegid() else member.gid
    member.uname = member.gname = ""
    return member


def _write_layout(archive: tarfile.TarFile, descriptors: list[Object], config: Object, name: str) -> None:
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    rootfs = {"type": "layers", "diff_ids": [descriptor["digest"] for descriptor in descriptors]}
    content = {"architecture": architecture, "os": "linux", "config": config, "rootfs": rootfs}
    config_entry = _add_blob(archive, json.dumps(content).encode(), _CONFIG)
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config_entry, "layers": descriptors}
    entry = _add_blob(archive, json.dumps(manifest).encode(), _MANIFEST)
    entry["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
    _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    # for `docker load` before version 25
    digests = [f"{_BLOB}{descriptor['digest'][7:]}" for descriptor in descriptors]
    legacy = [{"Config": f"{_BLOB}{config_entry['digest'][7:]}", "RepoTags": [name], "Layers": digests}]
    _add(archive, "manifest.json", json.dumps(legacy).encode())


def _add_layer(archive: tarfile.TarFile, file: IO[bytes], pack: Callable[[tarfile.TarFile], None]) -> Object:
    """Write a layer straight into the archive. Its name is its digest, so that its header is written after it."""
    start = archive.offset
    file.seek(start + tarfile.BLOCKSIZE)
    content = _HashedFile(file)
    with tarfile.open(fileobj=cast("IO[bytes]", content), mode="w|", format=tarfile.PAX_FORMAT) as layer:
        pack(layer)
    file.write(b"\0" * (-content.size % tarfile.BLOCKSIZE))
    archive.offset = file.tell()
    digest = content.digest.hexdigest()
    header = tarfile.TarInfo(f"{_BLOB}{digest}")
    header.size, header.mode = content.size, 0o644
    file.seek(start)
    file.write(header.tobuf(tarfile.GNU_FORMAT))
    file.seek(archive.offset)
    return {"mediaType": _LAYER, "digest": f"sha256:{digest}", "size": content.size}


class _HashedFile:
    """Counts and hashes what is written to a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest, self.size = hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._file.write(data)


def _add_blob(archive: tarfile.TarFile, data: bytes, kind: str) -> Object:
    digest = hashlib.sha256(data).hexdigest()
    _add(archive, f"{_BLOB}{digest}", data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    _add_stream(archive, name, io.BytesIO(data), len(data))


def _add_stream(archive: tarfile.TarFile, name: str, stream: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    archive.addfile(member, stream)
