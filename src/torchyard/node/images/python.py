"""The Python environment that mapped images run: found, with its torch, never reinstalled."""

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

_ASK = (
    "import sys, json, importlib.util as u; "
    "print(json.dumps([sys.prefix, sys.base_prefix, sys.executable, '.'.join(map(str, sys.version_info[:3])), "
    "u.find_spec('torch') is not None]))"
)


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter and every directory it needs."""

    executable: Path
    version: str
    prefixes: tuple[Path, ...]
    has_torch: bool

    @property
    def programs(self) -> Path:
        return self.executable.parent


@lru_cache(maxsize=8)
def describe(executable: str) -> Python:
    try:
        answer = subprocess.run([executable, "-c", _ASK], capture_output=True, text=True, timeout=60, check=True)
        prefix, base, itself, version, has_torch = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as failed:
        hint = "name one with --python, such as the bin/python of an environment"
        why = failed.strerror if isinstance(failed, OSError) else failed
        raise ImageError(f"{executable} is no working Python interpreter: {why}", hint=hint) from failed
    real = Path(itself).resolve().parent.parent
    return Python(Path(itself), version, tuple(sorted({Path(prefix), Path(base), real})), has_torch)


def find(preferred: str = "") -> Python:
    """The asked-for interpreter; else the active environment, ours, or the machine's: the first one with torch."""
    if preferred:
        return describe(preferred)
    active = [os.environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)]
    candidates = [f"{prefix}/bin/python" for prefix in active] + [sys.executable]
    on_path = shutil.which("python3")
    if on_path:
        candidates.append(on_path)
    usable = [describe(candidate) for candidate in dict.fromkeys(candidates) if Path(candidate).exists()]
    return next((one for one in usable if one.has_torch), usable[0])
