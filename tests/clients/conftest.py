"""kubectl against our server, in the oldest and the newest version here; with full effort in every version, and the
newest against the real server too, to prove the script."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import kubectl as kubectls
from tests.support.accounts import wait_for_account
from tests.support.effort import FULL
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server

VERSIONS = list(kubectls.versions())
# The oldest speaks JSON and SPDY, the newest protobuf and WebSockets.
CHOSEN = VERSIONS if FULL else [*dict.fromkeys((*VERSIONS[:1], *VERSIONS[-1:]))]
PAIRS = [*(f"yard-{version}" for version in CHOSEN), *(f"kube-{version}" for version in VERSIONS[-1:] if FULL)]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Discovery caches, kept from one kubectl to the next as on a person's machine."""
    return tmp_path_factory.mktemp("kubectl")


@pytest.fixture(params=PAIRS or ["none"])
def pair(request: pytest.FixtureRequest) -> tuple[Server, str]:
    if request.param == "none":
        pytest.skip(kubectls.MISSING)
    name, _, version = request.param.partition("-")
    return request.getfixturevalue(name), version


@pytest.fixture
def server(pair: tuple[Server, str]) -> Server:
    return pair[0]


@pytest.fixture
def k(pair: tuple[Server, str], cache: Path) -> Kubectl:
    """A kubectl in a fresh namespace of the server."""
    server, version = pair
    created = server.admin.post("/api/v1/namespaces", {"metadata": {"generateName": "kubectl-"}})
    assert created.status == 201, created
    namespace = created.json["metadata"]["name"]
    wait_for_account(server.admin, namespace)
    home = cache / f"{server.name}-{version}"
    home.mkdir(exist_ok=True)
    return Kubectl(version, kubectls.versions()[version]).using(server.kubeconfig, home, namespace)
