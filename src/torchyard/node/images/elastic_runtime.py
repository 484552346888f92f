"""The packages that run in pods, `torchyard.elastic` and `torchyard.initializer`, for environments that lack them.

They need torch and nothing else.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import torchyard
from torchyard.node.images.file_trees import link_tree

_PACKAGE = Path(torchyard.__file__).parent


@lru_cache(maxsize=4)
def directory(layers: Path) -> Path:
    """A directory for PYTHONPATH with these packages alone.

    In the user's cache, since containers have it at its own path: they must not see where the state of the plane is.
    Among the layers of the image store if the cache cannot be written.
    """
    packages = [path for name in ("elastic", "initializer") for path in sorted((_PACKAGE / name).rglob("*.py"))]
    sources = [_PACKAGE / "__init__.py", *packages]
    tree = {f"torchyard/{path.relative_to(_PACKAGE)}": path for path in sources}
    try:
        cache = _cache()
        cache.mkdir(parents=True, exist_ok=True)
        return link_tree(cache, "runtime", tree)
    except (OSError, RuntimeError):  # read-only, of another user, or there is no home
        return link_tree(layers, "runtime", tree)


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "torchyard" / "runtime"
