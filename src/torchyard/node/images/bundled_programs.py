"""The training programs that come with Torchyard, as a layer of the images that contain them.

The images of the documents contain the same few programs, each at a path of its own. A checkout has them in
`examples/mnist`, together with MNIST; an installed package has the programs alone, and they download their data.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from pathlib import Path

from torchyard.node.images.model import ImageError


def directory() -> Path:
    """The programs: beside this module in an installed package, in `examples` of a checkout."""
    candidates = (Path(__file__).with_name("programs"), Path(__file__).parents[4] / "examples" / "mnist")
    for candidate in candidates:
        if (candidate / "mnist.py").is_file():
            return candidate
    raise ImageError(
        "the training programs of this image are missing from the installation",
        hint="reinstall Torchyard, or build the image with: yard image build",
    )


def layer(layers: Path, target: str) -> Path:
    """A tree with the programs and their data in `target`; built once, and named by a digest of its content."""
    source = directory()
    files = sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    content = [f"{path.relative_to(source)} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    tree = layers / f"bundled-{hashlib.sha256(' '.join([target, *content]).encode()).hexdigest()}"
    if not tree.exists():
        partial = tree.with_name(f"building-{secrets.token_hex(8)}")
        for path in files:
            copy = partial / target.strip("/") / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(path, copy)
        partial.rename(tree)
    return tree


def _link_or_copy(source: Path, copy: Path) -> None:
    """A hard link where that is possible: nothing writes into a layer."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copy2(source, copy)
