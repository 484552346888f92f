"""Images everybody knows, mapped to what this machine has: its Python environment and its own programs.

A user's own table (`images/map.json` under the state directory: pattern → name of a known or built image) comes first.
"""

from __future__ import annotations

import fnmatch
import hashlib
from dataclasses import dataclass

from torchyard.node.images.model import PATH, Config, Image, full_name
from torchyard.node.images.python import Python
from torchyard.node.runtime.compose import Root


@dataclass(frozen=True, slots=True)
class Known:
    """`kind` python: the environment with torch first on PATH; shell: the machine's programs."""

    patterns: tuple[str, ...]
    kind: str
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    directory: str = "/"


KNOWN = (
    Known(("docker.io/pytorch/pytorch:*", "nvcr.io/nvidia/pytorch:*"), "python", ("bash",), directory="/workspace"),
    Known(("docker.io/library/python:*",), "python", ("python3",)),
    Known(("docker.io/library/busybox:*", "docker.io/library/alpine:*"), "shell", ("sh",)),
    Known(("docker.io/library/debian:*", "docker.io/library/ubuntu:*"), "shell", ("bash",)),
    Known(("registry.k8s.io/pause:*",), "shell", entrypoint=("sleep", "infinity")),
    Known(("torchyard.dev/python:*", "localhost/python:*"), "python", ("python3",)),
)  # fmt: skip


def find(name: str, python: Python) -> Image | None:
    """The mapped image of that name, or None."""
    full = full_name(name)
    for known in KNOWN:
        if any(fnmatch.fnmatchcase(full.partition("@")[0], pattern) for pattern in known.patterns):
            return _image(full, known, python)
    return None


def _image(full: str, known: Known, python: Python) -> Image:
    env = {"PATH": PATH}
    prefixes: tuple[object, ...] = python.prefixes
    if known.kind == "python":
        env["PATH"] = f"{python.programs}:{PATH}"
        env["PYTHON_VERSION"] = python.version
    # what is really used, so that a changed environment is a changed image
    said = f"{known.kind} {known.command} {known.entrypoint} {python.executable} {python.version} {prefixes}"
    digest = hashlib.sha256(said.encode()).hexdigest()
    config = Config(env=env, entrypoint=known.entrypoint, command=known.command, directory=known.directory)
    return Image(full, f"sha256:{digest}", Root(machine=True, prefixes=python.prefixes), config)
