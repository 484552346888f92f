"""The training programs that come with Torchyard, as a layer of the images that contain them.

The images of the documents contain the same few programs, each at a path of its own. A checkout has them in
`examples/mnist`, together with MNIST; an installed package has the programs alone, and they download their data.
"""

from __future__ import annotations

from pathlib import Path

from torchyard.node.images.file_trees import link_tree
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
    return link_tree(layers, "bundled", {f"{target.strip('/')}/{path.relative_to(source)}": path for path in files})
