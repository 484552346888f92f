"""A real Kubernetes node with containerd, and an image with this machine's Python on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.images import install_file, install_python
from tests.support.kubernetes import ROOT, Server, from_kubeconfig

SCRIPT = ROOT.parent / "shared" / "k8s" / "cluster"
PROGRAMS = ("containerd", "runc", "ctr", "iptables", "ip", "conntrack")
IMAGE = "localhost/hostile:1"


def need() -> None:
    """Skip where no real node can run."""
    if os.geteuid() != 0:
        pytest.skip("a real node needs root")
    if not SCRIPT.exists():
        pytest.skip("there is no script that starts a real node")
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        pytest.skip(f"a real node needs {', '.join(missing)}")


def install_image(tree: Path) -> None:
    """Python, a shell and `id`, all readable for every user."""
    install_python(tree, sys.executable, ())
    for program in ("/bin/sh", "/usr/bin/id", "/usr/bin/cp", "/usr/bin/chmod", "/usr/bin/sleep"):
        install_file(tree, Path(program))
    for directory, _, _ in os.walk(tree):
        os.chmod(directory, os.stat(directory).st_mode | 0o555)


def _free_ports() -> int:
    """The first of six ports that are not in use, below those that the kernel gives to clients."""
    for first in range(21000, 32000, 10):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + 6):
                    stack.enter_context(socket.socket()).bind(("0.0.0.0", port))
            except OSError:
                continue
            return first
    raise OSError("no six ports in a row are free")


@contextlib.contextmanager
def real_node(directory: Path) -> Iterator[Server]:
    """A cluster with one node that has the image. Its bridge is the machine's, so there is one at a time."""
    state = directory / "cluster"
    command = [str(SCRIPT), "{}", "--dir", str(state), "--port", str(_free_ports())]
    with (Path(tempfile.gettempdir()) / "real-node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            subprocess.run([command[0], "up", *command[2:], "--node"], check=True, stdout=subprocess.DEVNULL)
            install_image(directory / "tree")
            image = [command[0], "image", IMAGE, str(directory / "tree"), *command[2:]]
            subprocess.run(image, check=True, stdout=subprocess.DEVNULL)
            yield from_kubeconfig("kube", state / "kubeconfig", directory)
        finally:
            subprocess.run([command[0], "down", *command[2:]], check=False)


def versions() -> dict[str, str]:
    """What the verdicts were recorded with."""
    texts = {name: subprocess.check_output([name, "--version"], text=True) for name in ("containerd", "runc")}
    numbers = {name: re.findall(r"\d+\.\d+\.\d+", text)[0] for name, text in texts.items()}
    has_v2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return {
        **numbers,
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "cgroups": "2" if has_v2 else "1",
        "kubernetes": "1.34",
    }
