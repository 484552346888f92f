"""Loads images: OCI archives and what `docker save` and `podman save` write, unpacked without an engine.

All layers become one tree. Nothing in an archive is trusted: names and links are followed inside the tree only, and
every blob must have the digest that it is named by.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import tarfile
import time
from pathlib import Path
from typing import IO

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.node.images.model import ImageError, full_name
from torchyard.node.images.store import ImageStore
from torchyard.node.shim.rootfs import inside

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


def load(store: ImageStore, archive: Path, *, name: str = "") -> list[str]:
    """Returns the names of the loaded image."""
    if not archive.exists():
        raise ImageError(f"{archive} does not exist", code="NoArchive", hint="yard image save writes an archive")
    if not archive.is_file() or not tarfile.is_tarfile(archive):
        raise ImageError(f"{archive} is not an image archive", code="NoArchive", hint="yard image save writes one")
    with tarfile.open(archive) as packed:
        config_path, layers, names = _read_manifest(packed)
        names = [name] if name else names
        if not names:
            raise ImageError(f"the image in {archive} has no name", hint="name it: yard image load --name")
        config_data = _read(packed, config_path)
        image_id = f"sha256:{hashlib.sha256(config_data).hexdigest()}"
        config = json.loads(config_data)
        layer = f"loaded-{secrets.token_hex(8)}"
        tree = store.directory / "layers" / layer
        tree.mkdir(parents=True)
        try:
            for path in layers:
                with _open(packed, path) as stream:
                    unpack(stream, tree)
        except BaseException:
            shutil.rmtree(tree, ignore_errors=True)
            raise
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    content = {"config": config.get("config") or {}, "layers": [layer], "machine": False, "created": created}
    for image_name in names:
        store.add(image_name, image_id, content)
    return [full_name(image_name) for image_name in names]


def _read_manifest(packed: tarfile.TarFile) -> tuple[str, list[str], list[str]]:
    """(path of the config, paths of the layers, names), from whichever manifest the archive has."""
    names = packed.getnames()
    if "manifest.json" in names:
        first = json.loads(_read(packed, "manifest.json"))[0]
        return first["Config"], first["Layers"], first.get("RepoTags") or []
    if "index.json" not in names:
        raise ImageError("the archive is neither an OCI archive nor one of `docker save`: it has no index.json")
    entry = json.loads(_read(packed, "index.json"))["manifests"][0]
    annotations = entry.get("annotations") or {}
    name = annotations.get("io.containerd.image.name") or ""
    manifest = json.loads(_read(packed, _blob(entry)))
    for layer in manifest["layers"]:
        if layer["mediaType"].endswith("zstd"):
            raise ImageError("layers compressed with zstd are not supported", hint="save it with gzip or uncompressed")
    return _blob(manifest["config"]), [_blob(layer) for layer in manifest["layers"]], [name] if name else []


def _blob(entry: Object) -> str:
    algorithm, _, digest = str(entry["digest"]).partition(":")
    return f"blobs/{algorithm}/{digest}"


def _open(packed: tarfile.TarFile, path: str) -> IO[bytes]:
    """One file of the archive. A file that is named by a digest must have it."""
    member = packed.getmember(path)
    stream = packed.extractfile(member)
    if stream is None:
        raise ImageError(f"{path} of the archive is not a file")
    if path.startswith("blobs/sha256/"):
        digest = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]  # only read() is used
        if digest != Path(path).name:
            raise ImageError(f"{path} of the archive is damaged: its digest is {digest}")
        stream.seek(0)
    return stream


def _read(packed: tarfile.TarFile, path: str) -> bytes:
    with _open(packed, path) as stream:
        return stream.read()


def unpack(stream: IO[bytes], tree: Path) -> None:
    """Unpack an archive over a tree; neither its paths nor its links can lead out of it."""
    with tarfile.open(fileobj=stream) as layer:
        for member in layer:
            parts = [part for part in member.name.split("/") if part not in ("", ".")]
            if ".." in parts:
                raise YardError(f"{member.name}: a path of an image must not lead out of it", code="BadImage")
            if parts:
                parent = Path(inside(str(tree), "/".join(parts[:-1])))
                _unpack_member(layer, member, parent, parts[-1], tree)


def _unpack_member(layer: tarfile.TarFile, member: tarfile.TarInfo, parent: Path, name: str, tree: Path) -> None:
    parent.mkdir(parents=True, exist_ok=True)
    if name == _OPAQUE:
        for entry in parent.iterdir():
            _remove(entry)
        return
    if name.startswith(_WHITEOUT):
        _remove(parent / name.removeprefix(_WHITEOUT))
        return
    target = parent / name
    if member.isdir() and target.is_dir() and not target.is_symlink():
        pass
    else:
        _remove(target)
        if member.isdir():
            target.mkdir()
        elif member.issym():
            target.symlink_to(member.linkname)
        elif member.islnk():
            target.hardlink_to(inside(str(tree), member.linkname))
        elif member.isreg():
            with target.open("wb") as out, layer.extractfile(member) as source:  # type: ignore[union-attr]  # a file
                shutil.copyfileobj(source, out)
        else:
            return  # the sandbox provides device files, not the image
    if os.geteuid() == 0:
        os.chown(target, member.uid, member.gid, follow_symlinks=False)
    if not member.issym():
        target.chmod(member.mode & 0o7777)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
