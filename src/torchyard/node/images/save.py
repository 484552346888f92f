"""Writes an image as an OCI archive for `ctr image import`, `docker load` and `podman load`.

An image that was built on the machine's own programs can include them as its lowest layer. It then needs nothing of the
node that it is loaded on.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from torchyard.api.objects import Object
from torchyard.node.images import tree
from torchyard.node.images.model import ImageError, full_name
from torchyard.node.images.store import ImageStore
from torchyard.node.images.unpack import OPAQUE_WHITEOUT, WHITEOUT
from torchyard.node.runtime.rootfs_steps import CONFIGURATION, SYSTEM

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def save(store: ImageStore, name: str, target: Path, *, with_machine: bool = True) -> Path:
    """Write the archive. `with_machine` includes the programs and the Python environment of a mapped base image."""
    image = store.resolve(name)
    if not target.parent.is_dir():
        raise ImageError(f"directory {target.parent} does not exist", code="CannotSave")
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        layers = []
        if image.root.machine and with_machine:
            paths = [Path("/") / name for name in (*SYSTEM, *(f"etc/{file}" for file in CONFIGURATION))]
            layers.append(_pack(Path(scratch) / "machine.tar", [*paths, *image.root.prefixes], root=Path("/")))
        for number, layer in enumerate(image.root.layers):
            layers.append(_pack_layer(Path(scratch) / f"{number}.tar", layer))
        complete = Path(scratch) / "image.tar"  # renamed at the end, so that the target is never incomplete
        with tarfile.open(complete, "w") as archive:
            _write_layout(archive, layers, image.config.as_dict(), full_name(name))
        complete.replace(target)
    return target


def _pack(target: Path, paths: list[Path], *, root: Path) -> Path:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            if path.exists() or path.is_symlink():
                archive.add(path, arcname=str(path.relative_to(root)), filter=_as_root)
    return target


def _pack_layer(target: Path, layer: Path) -> Path:
    """A layer with its whiteouts as the files that stand for them in an OCI layer."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive, tree.opened(layer) as root:
        _add_directory(archive, root, layer, "")
    return target


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


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _with_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Files of the user who built or loaded the image are root's, as in the container; others keep their number."""
    member.uid = 0 if member.uid == os.geteuid() else member.uid
    member.gid = 0 if member.gid == os.getegid() else member.gid
    member.uname = member.gname = ""
    return member


def _write_layout(archive: tarfile.TarFile, layers: list[Path], config: Object, name: str) -> None:
    descriptors = [_add_file(archive, layer) for layer in layers]
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
    digests = [f"blobs/sha256/{descriptor['digest'][7:]}" for descriptor in descriptors]
    legacy = [{"Config": f"blobs/sha256/{config_entry['digest'][7:]}", "RepoTags": [name], "Layers": digests}]
    _add(archive, "manifest.json", json.dumps(legacy).encode())


def _add_file(archive: tarfile.TarFile, path: Path) -> Object:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        size = path.stat().st_size
        _add_stream(archive, f"blobs/sha256/{digest}", file, size)
    return {"mediaType": _LAYER, "digest": f"sha256:{digest}", "size": size}


def _add_blob(archive: tarfile.TarFile, data: bytes, kind: str) -> Object:
    digest = hashlib.sha256(data).hexdigest()
    _add(archive, f"blobs/sha256/{digest}", data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    _add_stream(archive, name, io.BytesIO(data), len(data))


def _add_stream(archive: tarfile.TarFile, name: str, stream: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    archive.addfile(member, stream)
