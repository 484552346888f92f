"""Fixtures shared by every test: a real Kubernetes, and every kubectl of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.support import kubectl as kubectls
from tests.support import kubernetes as real
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Kubernetes, Server
from tests.support.signals import restore_terminal_signals
from tests.support.yard import Yard

restore_terminal_signals()
# A property test must not fail because the machine is busy.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# What namespaces, service accounts and owner references need; nothing that creates or moves pods.
HOUSEKEEPING = ",".join(
    f"{name}-controller"
    for name in (
        *("garbage-collector", "namespace", "serviceaccount", "root-ca-certificate-publisher"),
        *("clusterrole-aggregation", "certificatesigningrequest-signing", "service-cidr"),
    )
)
# Static tokens for both servers: users without any rights.
USERS = 'alice-token,alice,1001,"developers"\nbob-token,bob,1002\n'


@pytest.fixture(scope="session")
def kubernetes_assets() -> Path:
    """The directory with a real Kubernetes' binaries."""
    directory = real.assets()
    if directory is None:
        pytest.skip(real.MISSING)
    return directory


@pytest.fixture(scope="session")
def kube_bare(kubernetes_assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real etcd + kube-apiserver without any controller, one per test worker."""
    with Kubernetes(tmp_path_factory.mktemp("kube-bare")) as server:
        yield server


@pytest.fixture(scope="session")
def kube(kubernetes_assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real kube-apiserver with namespace, service-account and garbage-collection controllers, one per test worker."""
    if not real.has("kube-controller-manager"):
        pytest.skip("this Kubernetes has no kube-controller-manager")
    directory = tmp_path_factory.mktemp("kube")
    authority = directory / "clients" / "ca"  # signs client certificates that the server accepts
    flags = ("--cluster-signing-cert-file", f"{authority}.crt", "--cluster-signing-key-file", f"{authority}.key")
    with Kubernetes(directory, controllers=HOUSEKEEPING, users=USERS, manager_flags=flags) as server:
        yield server


@pytest.fixture(scope="session")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Our server, one per test worker, with the housekeeping controllers and none that creates or runs pods."""
    with Yard(tmp_path_factory.mktemp("yard"), controllers=HOUSEKEEPING, users=USERS) as server:
        yield server


@pytest.fixture(params=list(kubectls.versions()) or ["none"])
def kubectl(request: pytest.FixtureRequest) -> Kubectl:
    """Every kubectl of this machine, one after the other."""
    if request.param == "none":
        pytest.skip(kubectls.MISSING)
    return Kubectl(request.param, kubectls.versions()[request.param])
