"""Images everybody knows, mapped to what this machine has: its Python environment and its own programs.

A user's own table (`images/map.json` under the state directory: pattern → name of a known or built image) comes first.
"""

from __future__ import annotations

import fnmatch
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

import torchyard
from torchyard.node.images import bundled_programs
from torchyard.node.images.model import PATH, Image, ImageConfig, full_name
from torchyard.node.images.python import Python, describe
from torchyard.node.runtime.rootfs_steps import RootfsSource

PACKAGE = Path(torchyard.__file__).parent


@dataclass(frozen=True, slots=True)
class WellKnownImage:
    """`kind` python: the environment with torch first on PATH; shell: the machine's programs; yard: ourselves.

    `programs` is the directory in which the image has the bundled training programs.
    """

    patterns: tuple[str, ...]
    kind: str
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    directory: str = "/"
    programs: str = ""


KNOWN = (
    WellKnownImage(
        ("docker.io/pytorch/pytorch:*", "nvcr.io/nvidia/pytorch:*"), "python", ("bash",), directory="/workspace"
    ),
    WellKnownImage(("docker.io/library/python:*",), "python", ("python3",)),
    WellKnownImage(("docker.io/library/busybox:*", "docker.io/library/alpine:*"), "shell", ("sh",)),
    WellKnownImage(("docker.io/library/debian:*", "docker.io/library/ubuntu:*"), "shell", ("bash",)),
    WellKnownImage(("registry.k8s.io/pause:*",), "shell", entrypoint=("sleep", "infinity")),
    WellKnownImage(("docker.io/library/hello-world:*",), "shell", entrypoint=("echo", "Hello from Torchyard!")),
    WellKnownImage(("docker.io/horovod/horovod:*",), "python", ("bash",)),
    WellKnownImage(("docker.io/elasticdl/elasticdl:*",), "yard", ("bash",)),
    WellKnownImage(("torchyard.dev/python:*", "localhost/python:*"), "python", ("python3",)),
    WellKnownImage(
        ("docker.io/*/pytorch-dist-mnist-test:*",),
        "python", entrypoint=("python", "/var/mnist.py"), directory="/var", programs="/var",
    ),
    WellKnownImage(
        (
            "projects.registry.vmware.com/models/kubeflow-docs/model-training-pytorch:*",
            "harbor-repo.vmware.com/kubeflow_learning/lab3-pytorch-training:*",
        ),
        "python", entrypoint=("python", "/opt/pytorch/train.py"), directory="/opt/pytorch", programs="/opt/pytorch",
    ),
    WellKnownImage(
        ("docker.io/*/traindb-training-mnist:*",),
        "python", entrypoint=("python3", "/opt/mnist/src/mnist_training.py"),
        directory="/opt/mnist/src", programs="/opt/mnist/src",
    ),
)  # fmt: skip


def find(name: str, python: Python, layers: Path) -> Image | None:
    """The mapped image of that name, or None. `layers` is the directory where layers are kept."""
    full = full_name(name)
    for known in KNOWN:
        if any(fnmatch.fnmatchcase(full.partition("@")[0], pattern) for pattern in known.patterns):
            return _image(full, known, python, layers)
    return None


def _image(full: str, known: WellKnownImage, python: Python, layers: Path) -> Image:
    env = {"PATH": PATH}
    trees = (bundled_programs.layer(layers, known.programs),) if known.programs else ()
    prefixes = python.prefixes
    if known.kind == "yard":
        # the environment this very package runs in, which need not be the one with torch
        python = describe(sys.executable)
        prefixes = (*python.prefixes, PACKAGE.parent)
        env["PYTHONPATH"] = f"{PACKAGE.parent}:{PACKAGE / 'elasticdl' / 'compat'}"
    if known.kind in ("python", "yard"):
        env["PATH"] = f"{python.programs}:{PATH}"
        env["PYTHON_VERSION"] = python.version
    # what is really used, so that a changed environment is a changed image
    parts: tuple[object, ...] = (known.kind, known.command, known.entrypoint, python, [tree.name for tree in trees])
    digest = hashlib.sha256(" ".join(str(part) for part in parts).encode()).hexdigest()
    config = ImageConfig(env=env, entrypoint=known.entrypoint, command=known.command, directory=known.directory)
    return Image(full, f"sha256:{digest}", RootfsSource(machine=True, layers=trees, prefixes=prefixes), config)
