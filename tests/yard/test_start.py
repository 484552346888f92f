"""What a start imports, and what is imported only when needed: a plane starts in a second, its help at once."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Modules that take long to load, and parts that no answer needs. A name stands for the modules below it too.
NEVER = (
    "aiohttp",
    "numpy",
    "prometheus_client",
    "psutil",
    "rich",
    "torch",
    "torchyard.apiserver.cel",
    "torchyard.controllers",
    "torchyard.elastic",
    "torchyard.elasticdl",
    "torchyard.node",
    "torchyard.operator",
    "torchyard.sdk",
    "yaml",
)
NOT_IN_A_COMMAND = (
    *NEVER,
    "cryptography",
    "multidict",
    "orjson",
    "sqlite3",
    "torchyard.apiserver",
    "torchyard.core",
    "torchyard.kube.client",
    "torchyard.yard.plane",
    "uvloop",
)
NOT_FOR_THE_VERSION = (*NOT_IN_A_COMMAND, "asyncio", "inspect", "logging", "torchyard.api", "torchyard.yard", "typer")


def _loaded_before_the_answer(state: Path) -> list[str]:
    """The modules that `yard up` has loaded when it prints its URL."""
    command = [sys.executable, "-X", "importtime", "-m", "torchyard.cli", "up", "--port", "0", "--state", str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as plane:
        assert plane.stdout is not None
        lines = list(itertools.takewhile(lambda line: not line.startswith("Torchyard is up"), plane.stdout))
        plane.send_signal(signal.SIGTERM)
        plane.communicate(timeout=60)
    return [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")]


def _run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _forbidden(modules: list[str], forbidden: tuple[str, ...]) -> list[str]:
    return [module for module in modules if module.startswith(tuple(f"{name}." for name in forbidden))] + [
        module for module in modules if module in forbidden
    ]


def test_the_version_is_printed_without_loading_anything() -> None:
    code = "import sys; sys.argv = ['yard', '--version']; from torchyard.cli import main; main(); print(*sys.modules)"
    version, modules = _run("-c", code).splitlines()
    assert version.startswith("yard ")
    assert _forbidden(modules.split(), NOT_FOR_THE_VERSION) == []


@pytest.mark.parametrize("command", ["up", "down", "status", "kubeconfig"])
def test_a_command_loads_only_its_own_modules(command: str) -> None:
    code = (
        f"import sys; from torchyard.cli.main import build_app; build_app({command!r});"
        " import torchyard.yard.process; print(*sys.modules)"
    )
    assert _forbidden(_run("-c", code).split(), NOT_IN_A_COMMAND) == []


def test_the_server_answers_before_the_parts_that_no_answer_needs_are_loaded(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = _loaded_before_the_answer(state)
    assert "torchyard.yard.plane" in first
    assert _forbidden(first, NEVER) == []
    again = _loaded_before_the_answer(state)
    # Certificates that were checked are not read again.
    assert _forbidden(again, (*NEVER, "cryptography")) == []
