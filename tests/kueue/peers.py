"""A real Kubernetes with the real Kueue, where `shared/peers` has it for this machine."""

from __future__ import annotations

import contextlib
import functools
import json
import lzma
import platform
import random
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    options = ["--kubeconfig", str(server.kubeconfig), "--dir", str(state), "--qps", "2000", "--port", str(_port())]
    subprocess.run([start, "kueue", *options, *(("--feature-gates", gates) if gates else ())], check=True)
    try:
        yield state
    finally:
        subprocess.run([START, "stop", str(state)], check=True)


def _port() -> int:
    """The first of three free ones, outside the range from which clients get theirs."""
    for port in random.SystemRandom().sample(range(12000, 30000, 3), 100):
        with contextlib.ExitStack() as sockets:
            try:
                for number in range(3):
                    sockets.enter_context(socket.create_server(("127.0.0.1", port + number)))
            except OSError:
                continue
            return port
    raise AssertionError("no three free ports in a row")


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


@functools.cache
def schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """Kueue's schemas by kind and version."""
    packed = (START.parent / "objects" / "kueue.json.xz").read_bytes()
    items = json.loads(lzma.decompress(packed))
    return {
        (item["spec"]["names"]["kind"], version["name"]): version["schema"]["openAPIV3Schema"]
        for item in items
        if item["kind"] == "CustomResourceDefinition"
        for version in item["spec"]["versions"]
    }
