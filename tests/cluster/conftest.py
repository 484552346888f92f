"""Our server with the real kube-controller-manager and kube-scheduler on it, as the controllers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support import kubectl as kubectls
from tests.support import kubernetes as real
from tests.support.accounts import wait_for_account
from tests.support.http import Client
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server
from tests.support.process import Process, free_port
from tests.support.yard import Yard


class Program:
    """One client-go program of the real Kubernetes, with our kubeconfig."""

    def __init__(self, binary: Path, server: Server, directory: Path, *flags: str) -> None:
        port = free_port()
        self.name = binary.name
        self.process = Process(
            [
                *(str(binary), "--kubeconfig", str(server.kubeconfig), "--secure-port", str(port)),
                *("--bind-address", "127.0.0.1", "--cert-dir", str(directory / self.name), "--v", "2", *flags),
            ],
            directory / f"{self.name}.log",
        )
        self.health = Client(f"https://127.0.0.1:{port}", ca=str(directory / self.name / f"{self.name}.crt"))

    @property
    def log(self) -> str:
        return self.process.log.read_text(errors="replace")

    def wait_until_healthy(self) -> None:
        certificate = Path(self.health.ca)
        self.process.wait_until(
            lambda: certificate.exists() and self.health.get("/healthz").status == 200, "health", 60
        )


@dataclass
class Cluster:
    server: Server
    manager: Program
    scheduler: Program
    kubectl: Kubectl


@pytest.fixture(scope="module")
def cluster(kubernetes_assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Torchyard's server without its controllers; Kubernetes' own do the work, elected through Leases."""
    missing = [name for name in ("kube-controller-manager", "kube-scheduler") if not real.has(name)]
    if missing:
        pytest.skip(f"this Kubernetes has no {', '.join(missing)}")
    directory = tmp_path_factory.mktemp("cluster")
    newest = kubectls.newest()
    assert newest is not None
    with Yard(directory / "yard", controllers="-*") as server:
        manager = Program(
            kubernetes_assets / "kube-controller-manager", server, directory, "--root-ca-file", str(server.ca)
        )
        scheduler = Program(kubernetes_assets / "kube-scheduler", server, directory)
        try:
            manager.wait_until_healthy()
            scheduler.wait_until_healthy()
            wait_for_account(server.admin)
            yield Cluster(server, manager, scheduler, newest.using(server.kubeconfig, directory, "default"))
        finally:
            manager.process.kill()
            scheduler.process.kill()
