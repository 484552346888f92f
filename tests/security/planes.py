"""A plane with its node, started by root or by an ordinary user, and what its pods try to reach on the machine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT, Server
from tests.support.ordinary_user import NOBODY, as_user, can, python_environment
from tests.support.yard import Yard

Targets = dict[str, str]


@dataclass(frozen=True)
class PlaneUser:
    """Who runs a plane: a uid, and the command that starts Python as that user."""

    uid: int
    python: tuple[str, ...]
    program: Path  # the interpreter


@dataclass(frozen=True)
class HostilePlane:
    server: Server
    state: Path
    targets: Targets
    user: PlaneUser
    yard: Yard


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every user may enter: a test must not pass because of the directory above the state."""
    directory = Path(tempfile.mkdtemp(prefix="yard-security-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def this_user() -> PlaneUser:
    return PlaneUser(os.geteuid(), (sys.executable,), Path(sys.executable).resolve())


@contextlib.contextmanager
def ordinary_user(directory: Path) -> Iterator[PlaneUser]:
    """An unprivileged user: the one that runs the tests, or one that is created for them."""
    if os.geteuid() != 0:
        yield this_user()
        return
    if not can("test", "-r", str(ROOT / "pyproject.toml")):
        pytest.skip(f"an ordinary user may not read {ROOT}")
    python = python_environment(directory / "environment", Path(sysconfig.get_path("purelib")))
    with _account() as uid:
        home = directory / "home"
        home.mkdir()
        os.chown(home, uid, uid)
        variables = [f"HOME={home}", f"TMPDIR={home}", f"PYTHONPATH={ROOT}/src:{ROOT}"]
        yield PlaneUser(uid, tuple(as_user(*variables, str(python), uid=uid)), python.resolve())


@contextlib.contextmanager
def _account() -> Iterator[int]:
    """A new account, with its range of subordinate ids; nobody, where none can be created."""
    name = f"yard-test-{secrets.token_hex(4)}"
    created = shutil.which("useradd") and subprocess.run(
        ["useradd", "--no-create-home", "--shell", "/usr/sbin/nologin", "--user-group", name],
        capture_output=True,
        check=False,
    )
    if not created or created.returncode:
        yield NOBODY
        return
    try:
        yield int(subprocess.check_output(["id", "-u", name], text=True))
    finally:
        subprocess.run(["userdel", name], capture_output=True, check=False)


@contextlib.contextmanager
def machine_targets(user: PlaneUser, directory: Path) -> Iterator[Targets]:
    """See `machine_targets.py`; they go away with the block."""
    mark = f"escape-{secrets.token_hex(6)}"
    place = directory / "targets"
    place.mkdir()
    os.chown(place, user.uid, -1)
    command = [*user.python, "-m", "tests.security.machine_targets", mark, str(place)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        targets: Targets = json.loads(process.stdout.readline())
        with _cgroup(mark):
            yield targets


@contextlib.contextmanager
def _cgroup(name: str) -> Iterator[None]:
    """A cgroup on the machine, where this user may create one."""
    roots = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")]
    path = next(root for root in roots if root.exists()) / name
    with contextlib.suppress(OSError):
        path.mkdir()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()


@contextlib.contextmanager
def hostile_plane(user: PlaneUser, directory: Path) -> Iterator[HostilePlane]:
    """A plane with a node, in `directory`, and targets beside it."""
    place = directory / "plane"
    place.mkdir()
    os.chown(place, user.uid, -1)
    with machine_targets(user, directory) as targets:
        python = (*user.python[:-1], f"ESCAPE_CANARY={targets['HOST_MARK']}", user.python[-1])
        if len(user.python) == 1:
            python = ("env", *python)
        plane = Yard(place, node=True, python=python)
        with plane as server:
            program = user.program.stat()
            yield HostilePlane(
                server,
                plane.state,
                {
                    **targets,
                    "RUNTIME_STATE": str(plane.state),
                    "RUNTIME_PROGRAM": f"{program.st_dev}:{program.st_ino}",
                },
                user,
                plane,
            )
