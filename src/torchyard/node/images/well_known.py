"""Well-known images, mapped to what this machine has: its Python environment and its own programs.

The user's own table (`images/map.json` under the state directory: pattern → name of an image) takes precedence.
"""

from __future__ import annotations

import fnmatch
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

import torchyard
from torchyard.node.images import bundled_programs, elastic_runtime
from torchyard.node.images.model import PATH, Image, ImageConfig, full_name
from torchyard.node.images.python import Python, describe
from torchyard.node.runtime.rootfs_steps import RootfsSource

PACKAGE = Path(torchyard.__file__).parent


@dataclass(frozen=True, slots=True)
class WellKnownImage:
    """`kind` is python (the environment with torch first on PATH), shell (the machine's programs) or yard (Torchyard).

    `programs` is the directory of the image that contains the bundled training programs.
    """

    patterns: tuple[str, ...]
    kind: str
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    directory: str = "/"
    programs: str = ""


# Ends on SIGTERM, which the kernel keeps from the first process of a container that has no handler for it.
_PAUSE = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"
# The first one and those that came before it, which test suites and older manifests still name; some have
# `pause-amd64` and the like.
_PAUSE_HOMES = ("registry.k8s.io", "k8s.gcr.io", "gcr.io/google_containers", "gcr.io/google-containers")
WELL_KNOWN = (
    WellKnownImage(
        ("docker.io/pytorch/pytorch:*", "nvcr.io/nvidia/pytorch:*"), "python", ("bash",), directory="/workspace"
    ),
    WellKnownImage(("docker.io/library/python:*",), "python", ("python3",)),
    WellKnownImage(("docker.io/library/busybox:*", "docker.io/library/alpine:*"), "shell", ("sh",)),
    WellKnownImage(("docker.io/library/debian:*", "docker.io/library/ubuntu:*"), "shell", ("bash",)),
    WellKnownImage(tuple(f"{home}/pause*:*" for home in _PAUSE_HOMES), "shell", entrypoint=("sh", "-c", _PAUSE)),
    WellKnownImage(("docker.io/library/hello-world:*",), "shell", entrypoint=("echo", "Hello from Torchyard!")),
    WellKnownImage(("docker.io/horovod/horovod:*",), "python", ("bash",)),
    WellKnownImage(("docker.io/elasticdl/elasticdl:*",), "yard", ("bash",)),
    WellKnownImage(
        ("ghcr.io/kubeflow/trainer/dataset-initializer:*",),
        "python", entrypoint=("python", "-m", "torchyard.initializer", "dataset"), directory="/workspace",
    ),
    WellKnownImage(
        ("ghcr.io/kubeflow/trainer/model-initializer:*",),
        "python", entrypoint=("python", "-m", "torchyard.initializer", "model"), directory="/workspace",
    ),
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
    """The mapped image of that name, or None. `layers` is the directory of all layers."""
    full = full_name(name)
    for entry in WELL_KNOWN:
        if any(fnmatch.fnmatchcase(full.partition("@")[0], pattern) for pattern in entry.patterns):
            return _image(full, entry, python, layers)
    return None


def _image(full: str, entry: WellKnownImage, python: Python, layers: Path) -> Image:
    env = {"PATH": PATH}
    trees = (bundled_programs.layer(layers, entry.programs),) if entry.programs else ()
    prefixes = python.prefixes
    if entry.kind == "yard":
        # the environment of Torchyard itself, which need not be the one with torch
        python = describe(sys.executable)
        prefixes = (*python.prefixes, PACKAGE.parent)
        env["PYTHONPATH"] = f"{PACKAGE.parent}:{PACKAGE / 'elasticdl' / 'compat'}"
    if entry.kind in ("python", "yard"):
        env["PATH"] = f"{python.programs}:{PATH}"
        env["PYTHON_VERSION"] = python.version
        env["PYTHONUNBUFFERED"] = "1"  # logs and progress show what a program prints when it prints it
    if entry.kind == "python" and not python.has_runtime:
        runtime = elastic_runtime.directory(layers)
        prefixes = (*prefixes, runtime)
        env["PYTHONPATH"] = str(runtime)
    # everything that is used, so that a changed environment is a changed image
    names = [tree.name for tree in trees]
    parts: tuple[object, ...] = (entry.kind, entry.command, entry.entrypoint, python, prefixes, names)
    digest = hashlib.sha256(" ".join(str(part) for part in parts).encode()).hexdigest()
    config = ImageConfig(env=env, entrypoint=entry.entrypoint, command=entry.command, directory=entry.directory)
    return Image(full, f"sha256:{digest}", RootfsSource(machine=True, layers=trees, prefixes=prefixes), config)
