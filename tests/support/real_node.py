"""A real Kubernetes with a node that runs pods: kubelet and containerd. It needs root, and some seconds to start."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.support.effort import FULL
from tests.support.kubernetes import ROOT
from tests.support.process import free_port

SCRIPT = ROOT.parent / "shared" / "k8s" / "cluster"


@contextmanager
def real_node(directory: Path) -> Iterator[Path]:
    """The kubeconfig of a cluster with a node: TORCHYARD_REAL_NODE, or one that is started in the directory."""
    if not FULL:
        pytest.skip("a real node takes minutes: TORCHYARD_TESTS=full")
    if os.geteuid() != 0 or not SCRIPT.exists() or not all(map(shutil.which, ("containerd", "runc", "ctr", "busybox"))):
        pytest.skip("no real node here: root, containerd, runc, busybox and the script that starts it are needed")
    if named := os.environ.get("TORCHYARD_REAL_NODE", ""):
        yield Path(named)
        return
    if any(item.info["name"] == "kubelet" for item in psutil.process_iter(["name"])):
        pytest.skip("another kubelet runs on this machine, and each would end the other's pods")
    where = ["--dir", str(directory / "cluster"), "--port", str(free_port())]
    try:
        started = subprocess.run([SCRIPT, "up", "--node", *where], capture_output=True, text=True, check=False)
        assert started.returncode == 0, started.stderr
        yield Path(started.stdout.split()[-1])
    finally:
        subprocess.run([SCRIPT, "down", *where], check=False, capture_output=True)


def load_image(kubeconfig: Path, archive: Path) -> None:
    """Load the images of an archive into the node."""
    socket = kubeconfig.parent / "containerd" / "containerd.sock"
    command = ["ctr", "-a", str(socket), "-n", "k8s.io", "images", "import", str(archive)]
    subprocess.run(command, check=True, capture_output=True)
