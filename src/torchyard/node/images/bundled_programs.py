"""The training programs that come with Torchyard, as a layer of the images that carry them.

The documents' images hold the same few programs, each at a place of its own. In a checkout they lie in `examples/mnist`
together with MNIST; an installed package has the programs alone, and they download their data.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from pathlib import Path

from torchyard.node.images.model import ImageError


def home() -> Path:
    """Where the programs are: beside this module in an installed package, in `examples` of a checkout."""
    places = (Path(__file__).with_name("programs"), Path(__file__).parents[4] / "examples" / "mnist")
    for place in places:
        if (place / "mnist.py").is_file():
            return place
    raise ImageError(
        "the training programs of this image did not come with this installation",
        hint="install Torchyard again, or build the image with: yard image build",
    )


def layer(layers: Path, directory: str) -> Path:
    """A tree with the programs and their data in `directory`; made once, under a name of what is in it."""
    source = home()
    files = sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    content = [f"{path.relative_to(source)} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    tree = layers / f"bundled-{hashlib.sha256(' '.join([directory, *content]).encode()).hexdigest()}"
    if not tree.exists():
        part = tree.with_name(f"building-{secrets.token_hex(8)}")
        for path in files:
            goal = part / directory.strip("/") / path.relative_to(source)
            goal.parent.mkdir(parents=True, exist_ok=True)
            _place(path, goal)
        part.rename(tree)
    return tree


def _place(source: Path, goal: Path) -> None:
    """As a second name of the file where that is possible: nothing writes into a layer."""
    try:
        os.link(source, goal)
    except OSError:
        shutil.copy2(source, goal)
