"""Trees of files that come with Torchyard, among the layers of an image store."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from torchyard import files


def link_tree(layers: Path, prefix: str, sources: Mapping[str, Path]) -> Path:
    """A tree with a file for every path; built once, and named by a digest of its content."""
    content = [f"{path} {source.stat().st_size} {source.stat().st_mtime_ns}" for path, source in sources.items()]
    tree = layers / f"{prefix}-{hashlib.sha256(' '.join(content).encode()).hexdigest()}"
    if tree.exists():
        return tree
    partial = tree.with_name(f"building-{secrets.token_hex(8)}")
    for path, source in sources.items():
        copy = partial / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        _link_or_copy(source, copy)
    try:
        partial.rename(tree)
    except OSError:  # another process was faster
        files.remove_tree(partial)
        if not tree.exists():
            raise
    return tree


def _link_or_copy(source: Path, copy: Path) -> None:
    """A hard link where that is possible: nothing writes into a layer."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copy2(source, copy)
