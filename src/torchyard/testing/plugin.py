"""The pytest plugin: a plane for each process of the test run, and a fresh state for each test.

`pytest_plugins = ["torchyard.testing.plugin"]` in a conftest.py loads it. As an entry point, pytest would rewrite
the assertions of the whole package in every test run.

With pytest-xdist every worker has a plane of its own. `yard_node = true` in the configuration of pytest lets it run
pods on this machine; `yard_controllers` chooses its controllers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torchyard.testing.plane import LocalPlane

_NUMBERS = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("yard_node", "Let the plane of the tests run pods on this machine.", type="bool", default=False)
    parser.addini("yard_controllers", "Controllers of the plane, such as *,-kueue.", default="*")


@pytest.fixture(scope="session")
def yard_plane(request: pytest.FixtureRequest) -> Iterator[LocalPlane]:
    """The plane of this process, with what all of its tests have left in it."""
    from torchyard.testing.plane import LocalPlane

    config = request.config
    with LocalPlane(node=config.getini("yard_node"), controllers=config.getini("yard_controllers")) as plane:
        yield plane


@pytest.fixture
def yard(yard_plane: LocalPlane) -> Iterator[LocalPlane]:
    """A plane as it was when it started."""
    yield yard_plane
    yard_plane.reset()


@pytest.fixture
def yard_namespace(yard: LocalPlane) -> str:
    """A namespace that no other test has."""
    name = f"test-{next(_NUMBERS)}"
    yard.create_namespace(name)
    return name


@pytest.fixture
def yard_kubeconfig(yard: LocalPlane) -> Path:
    """The kubeconfig of an administrator of the plane."""
    return yard.kubeconfig
