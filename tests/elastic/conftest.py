"""What the training tests share: torch or a reason, and the undisturbed result to compare with."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.elastic.forked_workers import ForkServer
from tests.elastic.zoo_programs import PROGRAMS, Undisturbed, digest_of
from tests.support.signals import restore_terminal_signals

restore_terminal_signals()
# A loaded machine is not a failure of the code under test.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
Alone = Callable[..., str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this directory that import torch. Others start a Python that has it in a process of its own."""
    if importlib.util.find_spec("torch") is None:
        missing = pytest.mark.skip(reason="torch is not installed in this environment")
        for item in items:
            if Path(__file__).parent in item.path.parents and item.get_closest_marker("train"):
                item.add_marker(missing)


@pytest.fixture(scope="session")
def alone() -> Alone:
    """The digest of the test program when it trains undisturbed, without a coordinator."""
    known: dict[tuple[str, ...], str] = {}

    def train(*arguments: str) -> str:
        if arguments not in known:
            done = subprocess.run(
                [sys.executable, PROGRAMS / "mlp.py", *arguments], capture_output=True, text=True, check=True
            )
            known[arguments] = digest_of(done.stdout)
        return known[arguments]

    return train


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """A process that has imported torch, and forks workers for all tests."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def undisturbed(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The outputs of the programs of `zoo_programs.py` that trained alone."""
    return Undisturbed(fork_server, tmp_path_factory.mktemp("alone"))
