"""The package `torchyard.elastic` for training environments that lack it: it needs torch and nothing else."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torchyard
from torchyard.node.images.file_trees import link_tree

_PACKAGE = Path(torchyard.__file__).parent


@lru_cache(maxsize=4)
def directory(layers: Path) -> Path:
    """A directory for PYTHONPATH with this package alone, among the layers of the image store."""
    sources = [_PACKAGE / "__init__.py", *sorted((_PACKAGE / "elastic").rglob("*.py"))]
    return link_tree(layers, "runtime", {f"torchyard/{path.relative_to(_PACKAGE)}": path for path in sources})
