"""Checkpoints in object stores (`s3://`, `gs://`, whatever fsspec knows): written here, sent there, fetched to be read.

A store has no rename: the manifest is sent last, and a checkpoint without one is not there. Local paths stay away.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from torchyard.elastic.checkpoint import files
from torchyard.elastic.errors import ElasticError


def is_remote(path: str) -> bool:
    return "://" in path


class CheckpointStore:
    """One directory of an object store."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._root = _connect(self.url)

    def names(self) -> list[str]:
        """All complete checkpoints, oldest first."""
        self._files.invalidate_cache()  # others write here too
        try:
            found = self._files.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        names = sorted(str(entry).rstrip("/").rpartition("/")[2] for entry in found)
        held = [name for name in names if name.startswith(files.PREFIX)]
        return [name for name in held if self._files.exists(f"{self._root}/{name}/{files.MANIFEST}")]

    def send(self, folder: Path) -> None:
        """Make a local checkpoint the one of its step there, whole or not at all."""
        place = f"{self._root}/{folder.name}"
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == files.MANIFEST):
            self._files.makedirs(place, exist_ok=True)
            self._files.put_file(str(entry), f"{place}/{entry.name}")

    def fetch(self, name: str, into: Path, *, manifest_only: bool = False) -> Path:
        """A copy of a checkpoint; what it lacks or has too much of is for `files.verify` to find."""
        folder = into / name
        folder.mkdir(parents=True, exist_ok=True)
        for entry in self._files.ls(f"{self._root}/{name}", detail=False):
            short = str(entry).rpartition("/")[2]
            if short == files.MANIFEST or not manifest_only:
                self._files.get_file(str(entry), str(folder / short))
        return folder

    def retain(self, keep: int) -> list[str]:
        """Remove all but the newest `keep`, each by its manifest first, so that none is ever half there."""
        gone = self.names()[:-keep] if keep else []
        for name in gone:
            self._files.rm_file(f"{self._root}/{name}/{files.MANIFEST}")
            self._files.rm(f"{self._root}/{name}", recursive=True)
        return gone


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
        found: tuple[Any, str] = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ElasticError(
            "NoStore", f"{url} cannot be reached: {error}", hint=f"pip install {_driver(scheme) or 'a driver for it'}"
        ) from error
    return found


def _driver(scheme: str) -> str:
    return {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub"}.get(scheme, "")


class CheckpointCache:
    """The newest sound checkpoint of a store, fetched once."""

    def __init__(self, store: CheckpointStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._bad: set[str] = set()
        self._held: tuple[Path, files.Manifest] | None = None

    def newest_sound(self) -> tuple[Path, files.Manifest] | None:
        """A damaged one is passed over, never repaired or removed."""
        for name in reversed(self._store.names()):
            if self._held is not None and self._held[0].name == name:
                return self._held
            if name in self._bad:
                continue
            self._forget()
            folder = self._store.fetch(name, self._folder)
            try:
                self._held = folder, files.verify(folder)
            except ElasticError:
                self._bad.add(name)
                shutil.rmtree(folder)
                continue
            return self._held
        return None

    def _forget(self) -> None:
        if self._held is not None:
            shutil.rmtree(self._held[0], ignore_errors=True)
            self._held = None
