"""The images of a node: those built or loaded here, and the well-known ones.

Layout: `images/names.json` (full name → id), `images/<id>/image.json` and `images/<id>/layers/…`.
"""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import Any

from torchyard import files
from torchyard.api.pod import kubelet_messages as messages
from torchyard.api.suggestions import closest
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
        """The image of that name: by the user's table, then built or loaded here, then well-known."""
        full = full_name(name)
        for pattern, target in self.mappings().items():
            if fnmatch.fnmatchcase(full, pattern) or fnmatch.fnmatchcase(name, pattern):
                return self._resolve_plain(full_name(target))
        return self._resolve_plain(full)

    def lacks(self, name: str) -> bool:
        """Whether the name is valid, but no image here has it."""
        try:
            self.resolve(name)
        except ImageError as error:
            return error.code == messages.REASON_IMAGE_PULL
        return False

    def _resolve_plain(self, full: str) -> Image:
        image_id = self.names().get(full)
        if image_id:
            return self.load(image_id, full)
        image = well_known.find(full, self.python, self.directory / "layers")
        if image is None:
            similar = _short(closest(full, self.names()))
            question = f"did you mean {similar}? Or " if similar else ""
            raise ImageError(
                messages.image_missing(full), hint=f"{question}{messages.image_missing_hint(_short(full))}"
            )
        return image

    def mappings(self) -> dict[str, str]:
        """The user's table: patterns of names and the images that run for them, in the order of their use."""
        path = self.directory / "map.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def map(self, pattern: str, target: str) -> None:
        """Run the image `target` for every name that matches `pattern`."""
        self._resolve_plain(full_name(target))
        records.write(str(self.directory / "map.json"), {**self.mappings(), pattern: target})

    def unmap(self, pattern: str) -> None:
        """Remove a pattern from the user's table."""
        mappings = self.mappings()
        if pattern not in mappings:
            similar = closest(pattern, mappings)
            hint = f"did you mean {similar}?" if similar else "list the patterns with: yard image map"
            raise ImageError(f"no image is mapped with the pattern {pattern}", hint=hint, code="NotFound")
        del mappings[pattern]
        records.write(str(self.directory / "map.json"), mappings)

    def names(self) -> dict[str, str]:
        path = self.directory / "names.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def _image_dir(self, image_id: str) -> Path:
        return self.directory / image_id.removeprefix("sha256:")

    def load(self, image_id: str, name: str) -> Image:
        content = self.describe(image_id)
        layers = tuple(self.directory / "layers" / layer for layer in content["layers"])
        root = RootfsSource(machine=content["machine"], layers=layers, prefixes=self._prefixes(name, content))
        return Image(name, image_id, root, ImageConfig.from_dict(content["config"]))

    def _prefixes(self, name: str, content: dict[str, Any]) -> tuple[Path, ...]:
        """The Python environment that the image was built with, whichever the plane has now."""
        if not content["machine"]:
            return ()
        prefixes = tuple(Path(prefix) for prefix in content.get("prefixes") or ()) or self.python.prefixes
        for prefix in prefixes:
            if not prefix.is_dir():
                raise ImageError(
                    f"image {name} was built with the Python environment {prefix}, which does not exist",
                    hint="build it again with: yard image build",
                    code=messages.REASON_CREATE_ERROR,
                )
        return prefixes

    def describe(self, image_id: str) -> dict[str, Any]:
        path = self._image_dir(image_id) / "image.json"
        if not path.exists():
            raise ImageError(f"no such image: {image_id}")
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    def add(self, name: str, image_id: str, content: dict[str, Any]) -> None:
        image_dir = self._image_dir(image_id)
        image_dir.mkdir(parents=True, exist_ok=True)
        records.write(str(image_dir / "image.json"), content)
        self.tag(image_id, name)

    def tag(self, source: str, name: str) -> None:
        image_id = source if source.startswith("sha256:") else self._id_of(source)
        records.write(str(self.directory / "names.json"), {**self.names(), full_name(name): image_id})

    def _id_of(self, name: str) -> str:
        try:
            return self.names()[full_name(name)]
        except KeyError:
            raise ImageError(
                f"image {name} does not exist on this node", hint="list the images with: yard image ls"
            ) from None

    def inspect(self, name: str) -> dict[str, Any]:
        image_id = self._id_of(name)
        return {"Id": image_id, "RepoTags": [full_name(name)], **self.describe(image_id)}

    def ls(self) -> list[dict[str, Any]]:
        """One entry per name, newest first."""
        images = [{"name": name, "id": image_id, **self.describe(image_id)} for name, image_id in self.names().items()]
        return sorted(images, key=lambda image: image["created"], reverse=True)

    def remove(self, name: str) -> list[str]:
        """Remove the name, and with the last name the image and every layer that no other image uses."""
        image_id = self._id_of(name)
        names = {key: value for key, value in self.names().items() if key != full_name(name)}
        records.write(str(self.directory / "names.json"), names)
        removed = [f"Untagged: {full_name(name)}"]
        if image_id not in names.values():
            own = set(self.describe(image_id)["layers"])
            used = {layer for other in set(names.values()) for layer in self.describe(other)["layers"]}
            files.remove_tree(self._image_dir(image_id))
            for layer in own - used:
                files.remove_tree(self.directory / "layers" / layer)
            removed.append(f"Deleted: {image_id}")
        return removed


def _short(full: str) -> str:
    return full.removeprefix("docker.io/").removeprefix("library/")
