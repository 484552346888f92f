"""A real Kubernetes with the real Kueue, where `shared/peers` has it for this machine."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kubernetes import ROOT, Kubernetes, Server, assets

START = ROOT.parent / "shared" / "peers" / "start"
_BINARIES = START.parent / "bin" / platform.machine()
MISSING = "no Kueue for this machine: shared/peers beside the checkout has none"


def has_kueue() -> bool:
    return assets() is not None and START.exists() and any(_BINARIES.glob("kueue-*"))


@contextmanager
def kueue(directory: Path, gates: str = "") -> Iterator[Server]:
    """kube-apiserver and Kueue without any other controller."""
    with Kubernetes(directory / "kube") as server:
        state = directory / "kueue"
        options = ["--kubeconfig", str(server.kubeconfig), "--dir", str(state), "--qps", "2000"]
        subprocess.run([START, "kueue", *options, *(("--feature-gates", gates) if gates else ())], check=True)
        try:
            yield server
        finally:
            subprocess.run([START, "stop", str(state)], check=True)
