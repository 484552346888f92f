"""Images of this node: those built here, kept under the state directory, and the known ones.

Layout: `images/names.json` (full name → id), `images/<id>/image.json` and `images/<id>/layers/…`.
"""

from __future__ import annotations

import fnmatch
import json
import shutil
from pathlib import Path
from typing import Any

from torchyard.node.images import well_known
from torchyard.node.images.model import Image, ImageConfig, ImageError, full_name
from torchyard.node.images.python import Python
from torchyard.node.runtime.rootfs_steps import RootfsSource
from torchyard.node.shim import records


class ImageStore:
    def __init__(self, directory: Path, python: Python) -> None:
        self.directory, self.python = directory, python
        directory.mkdir(parents=True, exist_ok=True)

    def resolve(self, name: str) -> Image:
        """The image of that name: the user's table, then images built here, then the known ones."""
        full = full_name(name)
        for pattern, goal in self._table().items():
            if fnmatch.fnmatchcase(full, pattern) or fnmatch.fnmatchcase(name, pattern):
                return self._resolve_plain(full_name(goal))
        return self._resolve_plain(full)

    def lacks(self, name: str) -> bool:
        """Whether the name is in order, but no image here goes by it."""
        try:
            self.resolve(name)
        except ImageError as failed:
            return failed.code == "ErrImagePull"
        return False

    def _resolve_plain(self, full: str) -> Image:
        image_id = self.names().get(full)
        if image_id:
            return self.load(image_id, full)
        found = well_known.find(full, self.python, self.directory / "layers")
        if found is None:
            short = full.removeprefix("docker.io/").removeprefix("library/")
            raise ImageError(
                f'"{full}" is not here, and this node has no registry to pull from',
                hint=f"build it with: yard image build -t {short} DIR, "
                f"or map it with: yard image map {short} pytorch/pytorch",
            )
        return found

    def _table(self) -> dict[str, str]:
        path = self.directory / "map.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def map(self, pattern: str, goal: str) -> None:
        """Run `goal` wherever a name matches `pattern`."""
        self._resolve_plain(full_name(goal))
        records.write(str(self.directory / "map.json"), {**self._table(), pattern: goal})

    def names(self) -> dict[str, str]:
        path = self.directory / "names.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def _home(self, image_id: str) -> Path:
        return self.directory / image_id.removeprefix("sha256:")

    def load(self, image_id: str, name: str) -> Image:
        read = self.describe(image_id)
        layers = tuple(self.directory / "layers" / one for one in read["layers"])
        root = RootfsSource(
            machine=read["machine"], layers=layers, prefixes=self.python.prefixes if read["machine"] else ()
        )
        return Image(name, image_id, root, ImageConfig.from_dict(read["config"]))

    def describe(self, image_id: str) -> dict[str, Any]:
        path = self._home(image_id) / "image.json"
        if not path.exists():
            raise ImageError(f"no such image: {image_id}")
        read: dict[str, Any] = json.loads(path.read_text())
        return read

    def add(self, name: str, image_id: str, content: dict[str, Any]) -> None:
        home = self._home(image_id)
        home.mkdir(parents=True, exist_ok=True)
        records.write(str(home / "image.json"), content)
        self.tag(image_id, name)

    def tag(self, source: str, name: str) -> None:
        image_id = source if source.startswith("sha256:") else self._id_of(source)
        records.write(str(self.directory / "names.json"), {**self.names(), full_name(name): image_id})

    def _id_of(self, name: str) -> str:
        try:
            return self.names()[full_name(name)]
        except KeyError:
            raise ImageError(
                f"no image named {name} was built here", hint="yard image ls shows those that were"
            ) from None

    def inspect(self, name: str) -> dict[str, Any]:
        image_id = self._id_of(name)
        return {"Id": image_id, "RepoTags": [full_name(name)], **self.describe(image_id)}

    def ls(self) -> list[dict[str, Any]]:
        """One entry per name, newest first."""
        found = [{"name": name, "id": image_id, **self.describe(image_id)} for name, image_id in self.names().items()]
        return sorted(found, key=lambda one: one["created"], reverse=True)

    def remove(self, name: str) -> list[str]:
        """Take the name away, and with the last name the image and every layer nobody else uses."""
        image_id = self._id_of(name)
        names = {key: value for key, value in self.names().items() if key != full_name(name)}
        records.write(str(self.directory / "names.json"), names)
        gone = [f"Untagged: {full_name(name)}"]
        if image_id not in names.values():
            mine = set(self.describe(image_id)["layers"])
            used = {layer for other in set(names.values()) for layer in self.describe(other)["layers"]}
            shutil.rmtree(self._home(image_id))
            for layer in mine - used:
                shutil.rmtree(self.directory / "layers" / layer, ignore_errors=True)
            gone.append(f"Deleted: {image_id}")
        return gone
