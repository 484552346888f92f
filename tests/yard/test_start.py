"""What a start imports, and what is imported only when needed: a plane starts in a second, its help at once."""

from __future__ import annotations

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

_PLANE = """
import asyncio, sys
from pathlib import Path
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

def report(url):
    print(*sys.modules, sep="\\n")
    sys.stdout.flush()

async def main():
    async with Plane(PlaneSettings(state=Path(sys.argv[1]), port=0), on_ready=report):
        pass

asyncio.run(main())
"""


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
    state = str(tmp_path / "state")
    first = _run("-c", _PLANE, state).split()
    assert _forbidden(first, NEVER) == []
    again = _run("-c", _PLANE, state).split()
    # Certificates that were checked are not read again.
    assert _forbidden(again, (*NEVER, "cryptography")) == []
