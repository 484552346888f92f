"""The `yard` command as a person meets it: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT
from tests.support.waiting import eventually
from tests.support.yard import yard

import torchyard
from torchyard.apiserver.store.log import Log


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Path]:
    """The state directory of a plane that runs in the background, without a node."""
    state = tmp_path / "state"
    started = yard("up", "--detach", "--port", "0", "--no-node", state=state, timeout=120)
    assert started.returncode == 0, started.stderr
    yield state
    yard("down", state=state, timeout=60)


def test_a_plane_is_started_looked_at_and_stopped(plane: Path) -> None:
    shown = yard("status", state=plane)
    assert shown.returncode == 0
    assert "address:    https://127.0.0.1:" in shown.stdout
    path = yard("kubeconfig", "--path", state=plane).stdout.strip()
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    stopped = yard("down", state=plane, timeout=60)
    assert stopped.stdout.startswith("stopped process ")
    gone = yard("status", state=plane)
    assert (gone.returncode, gone.stdout) == (1, f"not running (state: {plane})\n")
    assert yard("down", state=plane).stdout == f"no plane is running on {plane}\n"


@pytest.mark.parametrize(("host", "address"), [("127.0.0.2", "127.0.0.2"), ("localhost", "127.0.0.1")])
def test_a_plane_is_reached_wherever_it_listens(host: str, address: str, tmp_path: Path) -> None:
    started = yard("up", "--detach", "--port", "0", "--no-node", "--host", host, state=tmp_path, timeout=120)
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith((f"Torchyard is up at https://{address}:", "Torchyard is up at https://[::1]:"))
    listed = yard("queue", "list", state=tmp_path, timeout=60)
    yard("down", state=tmp_path, timeout=60)
    assert (listed.returncode, listed.stderr) == (0, "")


def test_a_plane_needs_no_operator_and_says_so(plane: Path) -> None:
    config = str(plane / "kubeconfig")

    def is_told() -> bool:
        said = _run("doctor", "--kubeconfig", config)
        return "operator:                this plane looks after PyTorchJobs and queues itself" in said

    eventually(is_told, "the pod that stands for its controllers", 60)
    refused = _ended("install", "--kubeconfig", config, "--image", "any")
    assert (refused.returncode, refused.stderr.startswith("error: this is a plane, which looks")) == (1, True)


def test_a_second_plane_on_the_same_state_says_so_and_leaves_the_first_alone(plane: Path) -> None:
    for more in ((), ("--detach",)):
        second = yard("up", "--port", "0", *more, state=plane, timeout=60)
        assert second.returncode == 1
        assert second.stderr.startswith(f"error: a plane is already running on {plane} at https://127.0.0.1:")
        assert "hint: use it, stop it with `yard down`" in second.stderr
    assert yard("status", state=plane).returncode == 0


def test_a_backup_of_a_running_plane_is_restored_into_another(plane: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    saved = yard("backup", str(copy), state=plane)
    assert saved.stdout.startswith("saved revision "), saved.stderr
    assert yard("backup", str(copy), state=plane).stderr.startswith(f"error: {copy} exists")
    refused = yard("restore", str(copy), "--replace", state=plane)
    assert "error: a plane is already running" in refused.stderr
    restored = yard("restore", str(copy), state=tmp_path / "other")
    assert restored.stdout == saved.stdout.replace("saved", "restored").replace(" to ", " from ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "--controllers", "nonsense"), "error: --controllers names 'nonsense', which does not exist"),
        (("up", "--fsync", "sometimes"), "error: --fsync 'sometimes' is not known"),
        (("kubeconfig",), "error: there is no kubeconfig in"),
        (("backup", "x.db"), "error: there is no store in"),
        (("restore", "missing.db"), "does not exist"),
        (("image", "build", "-t", "x", "."), "error: there is no Dockerfile at"),
        (("image", "inspect", "nobody"), "error: no image named nobody was built here"),
        (("image", "load", "missing.tar"), "error: missing.tar does not exist"),
        (("restore", "/"), "error: cannot read /: Is a directory"),
        (("restore", "/bin/true"), "is not a Torchyard store\nhint: name a file that `yard backup` wrote\n"),
        (("image", "save", "nobody", "-o", "x.tar"), 'error: "docker.io/library/nobody:latest" is not here, and this'),
        (("up", "--no-node", "--host", "no.such.host.invalid"), "error: cannot listen on no.such.host.invalid: "),
        (("up", "--node-name", "Bad Name"), "error: --node-name: a lowercase RFC 1123 subdomain must consist of"),
        (("up", "--assume-gpu-product", "a b"), "error: --assume-gpu-product: a valid label must be"),
        (("up", "--python", "/bin/true"), "error: /bin/true is no working Python interpreter: "),
        (("run", "missing.yaml"), "error: cannot read missing.yaml: No such file or directory\n"),
        (("run", sys.executable), f"error: cannot read {sys.executable}: it is no text"),
        (
            ("up", "--no-node", "--host", "198.51.100.7"),
            "error: cannot listen on 198.51.100.7:6550: this machine has no such",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_a_hint(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = yard(*arguments, state=tmp_path / "state", timeout=60)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("more", [(), ("--detach",)])
def test_a_plane_that_does_not_start_says_why_in_the_same_words_in_the_background(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        yard("up", "--detach", "--controllers", "nonsense", state=tmp_path, timeout=60)  # an older failure in the log
        done = yard("up", "--no-node", "--port", port, *more, state=tmp_path, timeout=60)
    hint = "hint: choose another with --port (0 takes a free one)\n"
    assert done.stderr.endswith(f"error: cannot listen on 127.0.0.1:{port}: the port is in use\n{hint}")
    assert (done.returncode, "nonsense" in done.stderr) == (1, False)


@pytest.mark.parametrize("command", ["up", "up --detach", "restore {copy}", "image ls", "status", "kubeconfig"])
@pytest.mark.parametrize("where", ["file", "proc"])
def test_what_cannot_be_a_state_directory_is_named(command: str, where: str, tmp_path: Path) -> None:
    state = {"file": tmp_path / "file", "proc": Path("/proc/nothing")}[where]
    copy = tmp_path / "copy.db"
    (tmp_path / "file").write_text("something else")
    Log(copy).close()
    done = yard(*command.format(copy=copy).split(), state=state, timeout=60)
    assert done.returncode == 1
    assert str(state) in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_said() -> None:
    assert _run("--version") == f"yard {torchyard.__version__}\n"


def test_images_are_built_listed_tagged_and_removed(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        'FROM python:3.11\nWORKDIR /app\nCOPY a.py .\nENTRYPOINT ["python3", "a.py"]\n'
    )
    (tmp_path / "a.py").write_text("print('a')\n")
    state = tmp_path / "state"
    built = yard("image", "build", "-t", "a:1", str(tmp_path), state=state, timeout=120)
    assert built.returncode == 0, built.stderr
    assert "Step 4/4 : ENTRYPOINT" in built.stdout
    yard("image", "tag", "a:1", "b:2", state=state)
    listed = yard("image", "ls", state=state).stdout
    assert "library/a:1" in listed
    assert "library/b:2" in listed
    shown = json.loads(yard("image", "inspect", "b:2", state=state).stdout)
    assert shown["config"]["Entrypoint"] == ["python3", "a.py"]
    assert "Untagged" in yard("image", "rm", "a:1", state=state).stdout
    assert "library/a:1" not in yard("image", "ls", state=state).stdout


def test_the_doctor_names_what_it_looked_at() -> None:
    said = _run("doctor")
    for what in ("python:", "training environment:", "sandbox:", "pod network:"):
        assert what in said


def test_elastic_is_the_runtimes_own_command_line() -> None:
    said = _run("elastic", "--help")
    assert said.startswith("usage: yard elastic ")
    for verb in ("run", "scale", "checkpoints"):
        assert verb in said


def _run(*arguments: str) -> str:
    done = _ended(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchyard.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
