"""Every kubectl of this machine by version, and a way to run one."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.kubernetes import assets

MISSING = "no kubectl that runs on this machine"


@dataclass(frozen=True)
class Kubectl:
    """One kubectl binary; `run` gives it a kubeconfig and a cache of its own."""

    version: str
    path: Path
    kubeconfig: Path | None = None
    namespace: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])

    def using(self, kubeconfig: Path, cache: Path, namespace: str = "") -> Kubectl:
        """Return the same kubectl for one cluster, with a default namespace."""
        return Kubectl(self.version, self.path, kubeconfig, namespace, {"KUBECACHEDIR": str(cache)})

    def command(self, *arguments: str) -> list[str]:
        return [str(self.path), *(["--namespace", self.namespace] if self.namespace else []), *arguments]

    def variables(self) -> dict[str, str]:
        """An environment without the settings of the user who runs the tests."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": self.environment.get("KUBECACHEDIR", tempfile.gettempdir()),
            "KUBECONFIG": str(self.kubeconfig or os.devnull),
            **self.environment,
        }

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run it to its end; the caller checks the exit code."""
        return subprocess.run(
            self.command(*arguments),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=self.variables(),
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Run it in the background; its standard output can be read line by line."""
        return subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.variables(),
        )

    def fails(self, *arguments: str, stdin: str | None = None) -> str:
        """Run it and return its standard error; AssertionError when it succeeds."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} succeeded:\n{done.stdout}"
        return done.stderr

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Run it and return its output; AssertionError with its standard error when it fails."""
        done = self.run(*arguments, stdin=stdin, timeout=timeout)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}"
        return done.stdout


@functools.cache
def versions() -> dict[str, Path]:
    """version ("1.34") → binary: those beside a dispatching kubectl in PATH, and those of a real Kubernetes."""
    binaries: dict[str, Path] = {}
    plain = shutil.which("kubectl")
    if plain:
        for path in Path(plain).resolve().parent.glob("kubectl.1.*"):
            binaries[path.name.removeprefix("kubectl.")] = path
    directory = assets()
    if directory is not None:
        for path in directory.glob("kubectl-1.*"):
            binaries[path.name.removeprefix("kubectl-")] = path
        _add(binaries, directory / "kubectl")
    if not binaries and plain:
        _add(binaries, Path(plain))
    return dict(sorted(binaries.items(), key=lambda entry: int(entry[0].split(".")[1])))


def newest() -> Kubectl | None:
    binaries = versions()
    return Kubectl(*list(binaries.items())[-1]) if binaries else None


def need() -> Kubectl:
    """Return the newest kubectl; skip the test if there is none."""
    kubectl = newest()
    if kubectl is None:
        pytest.skip(MISSING)
    return kubectl


def _add(binaries: dict[str, Path], binary: Path) -> None:
    version = _client_version(binary)
    if version is not None:
        binaries.setdefault(version, binary)


def _client_version(binary: Path) -> str | None:
    """Return its version; None if it does not exist or was built for another machine."""
    try:
        output = subprocess.check_output([binary, "version", "--client"], text=True, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    match = re.search(r"v(1\.\d+)", output)
    if match is None:
        raise RuntimeError(f"{binary} prints no version: {output}")
    return match[1]
