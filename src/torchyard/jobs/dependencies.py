"""The packages of a script: which ones it needs, and on the plane a directory with those that its image lacks.

On the plane, this machine installs them once for each list of requirements, with uv if it is installed and pip
otherwise, and pods mount the directory. On another cluster each pod installs them when it starts.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from torchyard import files
from torchyard.api.errors import YardError
from torchyard.core.run.requirements import (
    accepts_python,
    file_requirements,
    inline_python,
    inline_requirements,
    project_python,
    project_requirements,
)
from torchyard.jobs.requirement_files import changed_times, pip_options
from torchyard.jobs.text_files import read_text
from torchyard.node.images.python import Python

LOCK, REQUIREMENTS, PROJECT = "uv.lock", "requirements.txt", "pyproject.toml"


def find_requirements(script: Path | None, directory: Path) -> list[str]:
    """The requirements of a script: its own metadata, else those of its directory."""
    if script is not None:
        inline = inline_requirements(script.read_text(errors="replace"), script.name)
        if inline is not None:
            return inline
    uv = shutil.which("uv")
    if (directory / LOCK).is_file() and uv is not None:
        command = [uv, "export", "--frozen", "--no-dev", "--no-emit-project", "--no-hashes", "--quiet"]
        return file_requirements(_run([*command, "--directory", str(directory)], directory))
    if (directory / LOCK).is_file():
        sys.stderr.write(f"{LOCK} is not used: uv is not installed (`pip install uv`)\n")
    if (directory / REQUIREMENTS).is_file():
        return file_requirements(read_text(directory / REQUIREMENTS))
    if (directory / PROJECT).is_file():
        return project_requirements(read_text(directory / PROJECT))
    return []


def find_python(script: Path | None, directory: Path) -> str:
    """The versions of Python that a script requires: by its own metadata, else by its project. Empty: all."""
    if script is not None:
        text = script.read_text(errors="replace")
        if inline_requirements(text, script.name) is not None:
            return inline_python(text, script.name)
    return project_python(read_text(directory / PROJECT)) if (directory / PROJECT).is_file() else ""


def check_python(specifier: str, python: Python) -> None:
    """Raise YardError if an interpreter is none of those that a script requires."""
    if specifier and not accepts_python(specifier, python.version):
        raise YardError(
            f"requires-python is {specifier}, and the pods of this plane run Python {python.version}",
            hint="choose another with `yard down` and `yard up --python PATH`, or pass an image with --image",
            code="BadScript",
        )


def install(requirements: list[str], python: Python, directory: Path) -> Path | None:
    """A directory with the packages that the interpreter lacks, installed before if possible; None if it has all."""
    target = _target(requirements, python, directory)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix="building-", dir=target.parent))
        partial.chmod(0o755)
        try:
            _install(requirements, python, directory, partial)
            _publish(partial, target)
        except BaseException:
            files.remove_tree(partial)
            raise
    return target if any(target.iterdir()) else None


def is_installed(requirements: list[str], python: Python, directory: Path) -> bool:
    """Whether `install` would only return what it has installed before."""
    return _target(requirements, python, directory).exists()


def _target(requirements: list[str], python: Python, directory: Path) -> Path:
    identity = json.dumps(
        [requirements, str(python.executable), python.version, changed_times(requirements, directory)]
    )
    return _cache() / hashlib.sha256(identity.encode()).hexdigest()[:32]


def _publish(partial: Path, target: Path) -> None:
    try:
        partial.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        files.remove_tree(partial)  # another command has installed the same meanwhile


def _install(requirements: list[str], python: Python, directory: Path, target: Path) -> None:
    missing = _missing(requirements, python, directory)
    if not missing:
        return
    sys.stderr.write(f"installing {', '.join(missing)}\n")
    options = pip_options(requirements, directory)
    # uv chooses among several indexes in another way than pip, which has chosen the versions
    uv = shutil.which("uv") if not options else None
    if uv is not None:
        command = [uv, "pip", "install", "--quiet", "--python", str(python.executable)]
    else:
        command = [*_pip(python), "install", "--quiet", "--disable-pip-version-check"]
    with _requirements_file([*options, *missing], directory) as name:
        _run([*command, "--no-deps", "--target", str(target), "-r", name], directory)


def _missing(requirements: list[str], python: Python, directory: Path) -> list[str]:
    """What pip would install besides the packages of the environment, each with its version or its file."""
    with _requirements_file(requirements, directory) as name:
        options = ["--quiet", "--disable-pip-version-check", "--dry-run", "--report", "-", "-r", name]
        report = json.loads(_run([*_pip(python), "install", *options], directory))
    return [_pinned(entry) for entry in report["install"]]


@contextlib.contextmanager
def _requirements_file(lines: list[str], directory: Path) -> Iterator[str]:
    """A file of requirements in the directory, which its relative paths are relative to."""
    with tempfile.NamedTemporaryFile("w", prefix=".requirements-", suffix=".txt", dir=directory) as file:
        file.write("\n".join(lines))
        file.flush()
        yield file.name


def _pinned(entry: dict[str, dict[str, str]]) -> str:
    url = entry["download_info"]["url"]
    name, version = entry["metadata"]["name"], entry["metadata"]["version"]
    return f"{name} @ {url}" if url.startswith("file:") or entry.get("is_direct") else f"{name}=={version}"


def _pip(python: Python) -> list[str]:
    """pip of the environment; an environment without it uses the pip that this command runs with."""
    own = [str(python.executable), "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    return [sys.executable, "-m", "pip", "--python", str(python.executable)]


def _run(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise YardError(
            f"the packages of the script cannot be installed: {' '.join(lines[-2:]) or f'exit code {done.returncode}'}",
            hint="correct its requirements, or pass an image that has the packages with --image and --no-deps",
            code="InstallFailed",
        )
    return done.stdout


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "torchyard" / "packages"
