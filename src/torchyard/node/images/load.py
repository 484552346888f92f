"""Loads images: OCI archives and what `docker save` and `podman save` write, unpacked without an engine.

All layers become one tree (`unpack`). Every blob must have the digest that it is named by.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from torchyard import files
from torchyard.node.images import unpack
from torchyard.node.images.model import ImageConfig, ImageError, full_name
from torchyard.node.images.store import ImageStore
from torchyard.node.images.unpack import BadArchive, BoundedReader, Budget

_MAX_JSON, _MAX_MEMBERS = 8 << 20, 100_000


def load(store: ImageStore, archive: Path, *, name: str = "") -> list[str]:
    """Returns the names of the loaded image."""
    if not archive.exists():
        raise ImageError(f"{archive} does not exist", code="NoArchive", hint="yard image save writes an archive")
    if not archive.is_file() or not unpack.is_archive(archive):
        raise ImageError(f"{archive} is not an image archive", code="NoArchive", hint="yard image save writes one")
    try:
        with archive.open("rb") as stream, unpack.opened(stream) as (packed, reader):
            return _load(store, _Archive(packed, reader), name)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise BadArchive(f"{archive} is not a valid image archive: {type(error).__name__}: {error}") from error


def _load(store: ImageStore, packed: _Archive, name: str) -> list[str]:
    config_path, layers, names = _read_manifest(packed)
    names = [full_name(text) for text in ([name] if name else names)]
    if not names:
        raise ImageError("the image of the archive has no name", hint="name it: yard image load --name")
    config_data = packed.read(config_path)
    image_id = f"sha256:{hashlib.sha256(config_data).hexdigest()}"
    config = _checked_config(json.loads(config_data))
    layer = f"loaded-{secrets.token_hex(8)}"
    directory = store.directory / "layers" / layer
    directory.mkdir(parents=True)
    directory.chmod(0o755)  # the container's root, whatever the umask is
    try:
        budget = Budget.for_disk(directory)
        for path in layers:
            with packed.opened(path) as stream:
                unpack.unpack(stream, directory, budget)
    except BaseException:
        files.remove_tree(directory)
        raise
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    content = {"config": config, "layers": [layer], "machine": False, "created": created}
    for image_name in names:
        store.add(image_name, image_id, content)
    return names


def _checked_config(document: Any) -> dict[str, Any]:
    """The part of an image's config that containers are started with; anything else in its place is refused."""
    config = document.get("config") or {}
    for key in ("Env", "Entrypoint", "Cmd"):
        words = config.get(key) or []
        if not isinstance(words, list) or not all(isinstance(word, str) and "\0" not in word for word in words):
            raise BadArchive(f"config.{key} of the image is not a list of strings")
    for key in ("WorkingDir", "User"):
        if not isinstance(config.get(key) or "", str):
            raise BadArchive(f"config.{key} of the image is not a string")
    labels = config.get("Labels") or {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise BadArchive("config.Labels of the image is not a map of strings")
    return ImageConfig.from_dict(config).as_dict()


class _Archive:
    """The files of an archive by name."""

    def __init__(self, packed: tarfile.TarFile, reader: BoundedReader) -> None:
        self._packed, self._reader = packed, reader
        self.members: dict[str, tarfile.TarInfo] = {}
        count = 0
        while (member := reader.next_member(packed)) is not None:
            self.members[member.name.removeprefix("./")] = member
            count += 1
            if count > _MAX_MEMBERS:
                raise BadArchive(f"the archive has more than {_MAX_MEMBERS} files")

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[IO[bytes]]:
        """One file. A file that is named by a digest must have it."""
        if path not in self.members:
            raise BadArchive(f"the archive has no file {path}")
        stream = self._packed.extractfile(self.members[path])
        if stream is None:
            raise BadArchive(f"{path} of the archive is not a file")
        self._reader.in_content = True
        try:
            _, _, digest = path.rpartition("blobs/sha256/")
            if path.startswith("blobs/"):
                actual = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]  # only read() is used
                if actual != digest:
                    raise BadArchive(f"{path} of the archive is damaged: its digest is {actual}")
                stream.seek(0)
            yield stream
        finally:
            self._reader.in_content = False

    def read(self, path: str) -> bytes:
        with self.opened(path) as stream:
            data = stream.read(_MAX_JSON + 1)
        if len(data) > _MAX_JSON:
            raise BadArchive(f"{path} of the archive has more than {_MAX_JSON} bytes")
        return data


def _read_manifest(packed: _Archive) -> tuple[str, list[str], list[str]]:
    """(path of the config, paths of the layers, names), from whichever manifest the archive has."""
    if "manifest.json" in packed.members:
        first = json.loads(packed.read("manifest.json"))[0]
        return first["Config"], first["Layers"], first.get("RepoTags") or []
    if "index.json" not in packed.members:
        raise ImageError("the archive is neither an OCI archive nor one of `docker save`: it has no index.json")
    entry = json.loads(packed.read("index.json"))["manifests"][0]
    annotations = entry.get("annotations") or {}
    name = annotations.get("io.containerd.image.name") or ""
    manifest = json.loads(packed.read(_blob(entry)))
    for layer in manifest["layers"]:
        if layer["mediaType"].endswith("zstd"):
            raise ImageError("layers compressed with zstd are not supported", hint="save it with gzip or uncompressed")
    return _blob(manifest["config"]), [_blob(layer) for layer in manifest["layers"]], [name] if name else []


def _blob(entry: dict[str, Any]) -> str:
    algorithm, _, digest = str(entry["digest"]).partition(":")
    if algorithm != "sha256":
        raise BadArchive(f"the digest {entry['digest']} is not supported; use sha256")
    return f"blobs/sha256/{digest}"
