"""The Python environment of mapped images. It is found, with its torch, and never reinstalled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from torchyard.node.images.model import ImageError

_DESCRIBE = (
    "import sys, json, importlib.util as u; "
    "package = u.find_spec('torchyard'); "
    "print(json.dumps([sys.prefix, sys.base_prefix, sys.executable, '.'.join(map(str, sys.version_info[:3])), "
    "u.find_spec('torch') is not None, package.origin if package else None]))"
)


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter and every directory that it needs. `has_runtime`: one of them contains Torchyard."""

    executable: Path
    version: str
    prefixes: tuple[Path, ...]
    has_torch: bool
    has_runtime: bool = False

    @property
    def programs(self) -> Path:
        return self.executable.parent


@lru_cache(maxsize=8)
def describe(executable: str) -> Python:
    try:
        result = subprocess.run([executable, "-c", _DESCRIBE], capture_output=True, text=True, timeout=60, check=True)
        prefix, base_prefix, path, version, has_torch, package = json.loads(result.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        hint = "choose another with --python, such as the bin/python of an environment"
        reason = error.strerror if isinstance(error, OSError) else error
        raise ImageError(f"{executable} is not a working Python interpreter: {reason}", hint=hint) from error
    real_prefix = Path(path).resolve().parent.parent
    named = {Path(prefix), Path(base_prefix), real_prefix}
    # Programs of an environment begin with the path at which it was made, and may have been reached by a link.
    prefixes = named | {directory.resolve() for directory in named}
    has_runtime = package is not None and any(Path(package).is_relative_to(directory) for directory in prefixes)
    return Python(Path(path), version, tuple(sorted(prefixes)), has_torch, has_runtime)


def find(preferred: str = "") -> Python:
    """The preferred interpreter; else the active environment, our own, or the machine's: the first one with torch."""
    if preferred:
        return describe(preferred)
    active = [os.environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)]
    candidates = [f"{prefix}/bin/python" for prefix in active] + [sys.executable]
    on_path = shutil.which("python3")
    if on_path:
        candidates.append(on_path)
    usable = [describe(candidate) for candidate in dict.fromkeys(candidates) if Path(candidate).exists()]
    return next((python for python in usable if python.has_torch), usable[0])
