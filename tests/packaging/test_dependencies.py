"""Every distribution that the code imports is declared in pyproject.toml or in a requirements file."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT
from tests.support.syntax import parse

# Modules whose distribution has another name.
DISTRIBUTIONS = {
    "kubeflow": "kubeflow-training",
    "prometheus_client": "prometheus-client",
    "pynvml": "nvidia-ml-py",
    "re2": "google-re2",
    "streaming": "mosaicml-streaming",
    "yaml": "pyyaml",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = [
    *PROJECT["project"]["dependencies"],
    *(requirement for extra in PROJECT["project"]["optional-dependencies"].values() for requirement in extra),
]
DEVELOPMENT = [*PROJECT["dependency-groups"]["dev"], *PROJECT["dependency-groups"]["docs"]]
OWN = {"torchyard", "tests", "bench", "tools", *(path.stem for path in (ROOT / "tools").glob("*.py"))}


def distribution(requirement: str) -> str:
    """`typer>=0.15,<0.29` → `typer`, spelled as PyPI normalizes it."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, f"not a requirement: {requirement!r}"
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def requirement_files() -> Iterator[str]:
    """What is installed when it is needed: client libraries, training, the browser of the console's tests."""
    patterns = ("clients/*.txt", "train*.txt", "console.txt")
    for path in (path for pattern in patterns for path in (ROOT / "requirements").glob(pattern)):
        for line in path.read_text().splitlines():
            if line and line[0].isalnum():
                yield line


def imported(directory: Path) -> dict[str, Path]:
    """The top-level modules that the files of a directory import, each with one file that does.

    Without those that lie beside the file: a program imports them by their name alone.
    """
    modules: dict[str, Path] = {}
    for path in directory.rglob("*.py"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            else:
                continue
            tops = (name.partition(".")[0] for name in names)
            modules.update((name, path) for name in tops if not path.with_name(f"{name}.py").exists())  # programs
    return {name: path for name, path in modules.items() if name not in sys.stdlib_module_names | OWN}


@pytest.mark.parametrize("directory", ["src", "tests", "bench", "tools"])
def test_every_imported_distribution_is_declared(directory: str) -> None:
    requirements = RUNTIME if directory == "src" else [*RUNTIME, *DEVELOPMENT, *requirement_files()]
    declared = {distribution(requirement) for requirement in requirements}
    undeclared = {
        name: str(path.relative_to(ROOT))
        for name, path in imported(ROOT / directory).items()
        if distribution(DISTRIBUTIONS.get(name, name)) not in declared
    }
    assert undeclared == {}, "declare these in pyproject.toml"


def test_an_undeclared_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os, helper\nfrom httpx import Client\nfrom . import sibling\n")
    (tmp_path / "helper.py").touch()
    assert imported(tmp_path) == {"httpx": tmp_path / "program.py"}
