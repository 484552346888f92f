"""Checkpoints in object stores (`s3://`, `gs://` and all others that fsspec supports): written locally, then uploaded.

An object store has no rename. So the manifest is uploaded last, and a checkpoint without a manifest does not count.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchyard.elastic.checkpoint import files
from torchyard.elastic.errors import ElasticError


def is_remote(path: str) -> bool:
    return "://" in path


class CheckpointStore:
    """The checkpoints in one directory of an object store."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._root = _connect(self.url)

    def names(self) -> list[str]:
        """Return the names of all complete checkpoints, oldest first."""
        self._files.invalidate_cache()  # other processes write to the store too
        try:
            entries = self._files.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        names = sorted(str(entry).rstrip("/").rpartition("/")[2] for entry in entries)
        checkpoints = [name for name in names if files.is_checkpoint_name(name)]
        return [name for name in checkpoints if self._files.exists(f"{self._root}/{name}/{files.MANIFEST}")]

    def send(self, folder: Path) -> None:
        """Upload a local checkpoint; it counts when its manifest has arrived."""
        destination = f"{self._root}/{folder.name}"
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == files.MANIFEST):
            self._files.makedirs(destination, exist_ok=True)
            self._files.put_file(str(entry), f"{destination}/{entry.name}")

    def fetch(self, name: str, into: Path, *, manifest_only: bool = False) -> Path:
        """Download a checkpoint, and return its local path. It may be damaged; `files.verify` checks it.

        Only the files of its manifest are downloaded, and only if they have the sizes that the manifest says.
        """
        folder, source = into / name, f"{self._root}/{name}"
        folder.mkdir(parents=True, exist_ok=True)
        if self._size(f"{source}/{files.MANIFEST}") > files.LARGEST_MANIFEST:
            raise files.foreign(Path(source, files.MANIFEST), f"it is larger than {files.LARGEST_MANIFEST} bytes")
        self._files.get_file(f"{source}/{files.MANIFEST}", str(folder / files.MANIFEST))
        if manifest_only:
            return folder
        try:
            records = files.read_manifest(folder).files
        except ElasticError:
            return folder
        for file, record in records.items():
            if self._size(f"{source}/{file}") == record["size"]:
                self._files.get_file(f"{source}/{file}", str(folder / file))
        return folder

    def _size(self, path: str) -> int:
        """Return the size of an object; -1 if there is none."""
        try:
            return int(self._files.info(path)["size"])
        except FileNotFoundError:
            return -1

    def prune(self, keep: int) -> list[str]:
        """Remove all but the newest `keep` checkpoints, manifests first, so that none counts while it is incomplete."""
        removed = self.names()[:-keep] if keep else []
        for name in removed:
            self._files.rm_file(f"{self._root}/{name}/{files.MANIFEST}")
            self._files.rm(f"{self._root}/{name}", recursive=True)
        return removed


def _connect(url: str) -> tuple[Any, str]:
    scheme = url.partition("://")[0]
    try:
        import fsspec
    except ImportError as error:
        raise ElasticError(
            "NoFsspec",
            f"{url} needs fsspec, which is not installed",
            hint=f"pip install fsspec {_driver(scheme)}".strip(),
        ) from error
    try:
        filesystem: tuple[Any, str] = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ElasticError(
            "NoStore",
            f"{url} cannot be reached: {error}",
            hint=f"pip install {_driver(scheme) or 'a driver for this scheme'}",
        ) from error
    return filesystem


def _driver(scheme: str) -> str:
    return {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub"}.get(scheme, "")


class CheckpointCache:
    """A local copy of the newest valid checkpoint of a store."""

    def __init__(self, store: CheckpointStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._bad: set[str] = set()
        self._cached: tuple[Path, files.Manifest] | None = None

    def newest_valid(
        self, on_skip: Callable[[Path, ElasticError], None] | None = None
    ) -> tuple[Path, files.Manifest] | None:
        """Return the newest checkpoint that verifies. A damaged one is skipped, never repaired or removed."""
        for name in reversed(self._store.names()):
            if self._cached is not None and self._cached[0].name == name:
                return self._cached
            if name in self._bad:
                continue
            self._drop()
            folder = self._folder / name
            try:
                self._cached = folder, files.verify(self._store.fetch(name, self._folder))
            except ElasticError as error:
                self._bad.add(name)
                shutil.rmtree(folder)
                if on_skip is not None:
                    on_skip(folder, error)
                continue
            return self._cached
        return None

    def _drop(self) -> None:
        if self._cached is not None:
            shutil.rmtree(self._cached[0], ignore_errors=True)
            self._cached = None
