"""A real Kubernetes with the real Kueue, where `shared/peers` has it for this machine."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.kubernetes import ROOT, Kubernetes, Server, assets

START = ROOT.parent / "shared" / "peers" / "start"
_BINARIES = START.parent / "bin" / platform.machine()
MISSING = "no Kueue for this machine: shared/peers beside the checkout has none"


def has_kueue() -> bool:
    return assets() is not None and START.exists() and any(_BINARIES.glob("kueue-*"))


@contextmanager
def kueue(directory: Path, gates: str = "", configuration: Mapping[str, object] | None = None) -> Iterator[Server]:
    """kube-apiserver and Kueue without any other controller. `configuration`: more fields of Kueue's Configuration."""
    with Kubernetes(directory / "kube") as server, kueue_manager(server, directory, gates, configuration):
        yield server


@contextmanager
def kueue_manager(
    server: Server, directory: Path, gates: str = "", configuration: Mapping[str, object] | None = None
) -> Iterator[Path]:
    """Kueue on a running API server. Yields the directory of its state, with its configuration and its log."""
    start = START if configuration is None else _configured(directory / "peers", configuration)
    state = directory / "kueue"
    options = ["--kubeconfig", str(server.kubeconfig), "--dir", str(state), "--qps", "2000"]
    subprocess.run([start, "kueue", *options, *(("--feature-gates", gates) if gates else ())], check=True)
    try:
        yield state
    finally:
        subprocess.run([START, "stop", str(state)], check=True)


def _configured(directory: Path, configuration: Mapping[str, object]) -> Path:
    """A copy of the start script that adds fields to the configuration it writes."""
    directory.mkdir(parents=True)
    for name in ("bin", "objects"):
        (directory / name).symlink_to((START.parent / name).resolve())
    (directory.parent / "k8s").symlink_to((START.parent.parent / "k8s").resolve())
    text, write = START.read_text(), "json.dump(config, "
    if text.count(write) != 1:
        raise AssertionError(f"{START} writes its configuration in another way than expected")
    start = directory / "start"
    start.write_text(
        text.replace(write, f"config.update(json.loads({json.dumps(json.dumps(configuration))})); {write}")
    )
    start.chmod(0o755)
    return start
