"""The `yard` command: its output and its exit codes."""

from __future__ import annotations

import json
import os
import re
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


def test_up_status_kubeconfig_and_down(plane: Path) -> None:
    status = yard("status", state=plane)
    assert status.returncode == 0
    assert "address:    https://127.0.0.1:" in status.stdout
    assert re.search(r"^parts: +\d+ running$", status.stdout, re.MULTILINE)
    assert "PART " not in status.stdout, "parts that run are not listed"
    assert yard("status", "-q", state=plane).stdout == "torchyard\n"
    lines = yard("status", "--all", state=plane).stdout.splitlines()
    header = next(index for index, line in enumerate(lines) if line.startswith("PART "))
    assert lines[header].split() == ["PART", "STATE", "FAILURES", "SINCE", "LAST", "ERROR"]
    rows = [line.split() for line in lines[header + 1 :]]
    assert ["upkeep", "Running", "0"] in [row[:3] for row in rows]
    path = yard("kubeconfig", "--path", state=plane).stdout.strip()
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    stopped = yard("down", state=plane, timeout=60)
    assert stopped.stdout.startswith("stopped process ")
    status = yard("status", state=plane)
    assert (status.returncode, status.stdout) == (1, f"not running (state: {plane})\n")
    status = yard("status", "-o", "json", state=plane)
    assert (status.returncode, json.loads(status.stdout)) == (1, {"running": False, "state": str(plane)})
    assert yard("down", state=plane).stdout == f"no plane is running on {plane}\n"


def test_the_status_as_json_has_the_parts(plane: Path) -> None:
    status = json.loads(yard("status", "-o", "json", state=plane).stdout)
    assert status.keys() == {
        *("running", "state", "process", "address", "since", "kubeconfig", "storeBytes", "node", "parts", "error")
    }
    assert (status["running"], status["error"], status["node"]) == (True, "", "")
    parts = {part["part"]: part for part in status["parts"]}
    assert parts["upkeep"].keys() == {"part", "state", "since", "failures", "lastError"}
    assert {part["state"] for part in parts.values()} == {"Running"}


@pytest.mark.parametrize(("host", "address"), [("127.0.0.2", "127.0.0.2"), ("localhost", "127.0.0.1")])
def test_commands_reach_the_plane_on_any_listen_address(host: str, address: str, tmp_path: Path) -> None:
    started = yard("up", "--detach", "--port", "0", "--no-node", "--host", host, state=tmp_path, timeout=120)
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith((f"Torchyard is up at https://{address}:", "Torchyard is up at https://[::1]:"))
    listed = yard("queue", "list", state=tmp_path, timeout=60)
    yard("down", state=tmp_path, timeout=60)
    assert (listed.returncode, listed.stderr) == (0, "")


def test_doctor_and_install_recognise_a_plane(plane: Path) -> None:
    config = str(plane / "kubeconfig")

    def is_recognised() -> bool:
        report = _run("doctor", "--kubeconfig", config)
        return "operator:                built into this plane" in report

    eventually(is_recognised, "the mirror pod of the controllers", 60)
    refused = _run_unchecked("install", "--kubeconfig", config, "--image", "any")
    assert (refused.returncode, refused.stderr.startswith("error: this is a plane; it runs")) == (1, True)


def test_a_second_plane_on_the_same_state_fails_and_does_not_touch_the_first(plane: Path) -> None:
    for flags in ((), ("--detach",)):
        second = yard("up", "--port", "0", *flags, state=plane, timeout=60)
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
    ("arguments", "message"),
    [
        (("up", "--controllers", "nonsense"), "error: --controllers names unknown controllers: 'nonsense'"),
        (("up", "--fsync", "sometimes"), "error: --fsync 'sometimes' is not a valid mode"),
        (("kubeconfig",), "error: there is no kubeconfig in"),
        (("backup", "x.db"), "contains no store"),
        (("restore", "missing.db"), "does not exist"),
        (("image", "build", "-t", "x", "."), "error: there is no Dockerfile at"),
        (("image", "inspect", "missing"), "error: image missing does not exist on this node"),
        (("image", "load", "missing.tar"), "error: missing.tar does not exist"),
        (("restore", "/"), "error: / is not a regular file"),
        (("restore", "/bin/true"), "is not a Torchyard store\nhint: name a file that `yard backup` wrote\n"),
        (
            ("image", "save", "missing", "-o", "x.tar"),
            'error: image "docker.io/library/missing:latest" does not exist on this node',
        ),
        (("up", "--no-node", "--host", "no.such.host.invalid"), "error: cannot listen on no.such.host.invalid: "),
        (("up", "--node-name", "Bad Name"), "error: --node-name: a lowercase RFC 1123 subdomain must consist of"),
        (("up", "--assume-gpu-product", "a b"), "error: --assume-gpu-product: a valid label must be"),
        (("up", "--python", "/bin/true"), "error: /bin/true is not a working Python interpreter: "),
        (
            ("up", "--no-node", "--route-pods"),
            "error: --route-pods: the machine does not reach the addresses of pods and",
        ),
        (("run", "missing.yaml"), "error: cannot read missing.yaml: No such file or directory\n"),
        (("run", sys.executable), f"error: cannot read {sys.executable}: it is not a text file"),
        (
            ("up", "--no-node", "--host", "198.51.100.7"),
            "error: cannot listen on 198.51.100.7:6550: this machine has no such",
        ),
    ],
)
def test_a_mistake_gets_one_message_and_no_traceback(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = yard(*arguments, state=tmp_path / "state", timeout=60)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("flags", [(), ("--detach",)])
def test_a_failed_start_prints_the_same_error_in_the_foreground_and_in_the_background(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        yard("up", "--detach", "--controllers", "nonsense", state=tmp_path, timeout=60)  # an older failure in the log
        done = yard("up", "--no-node", "--port", port, *flags, state=tmp_path, timeout=60)
    hint = "hint: choose another with --port (0 takes a free one)\ncode: PortTaken\n"
    assert done.stderr.endswith(f"error: cannot listen on 127.0.0.1:{port}: the port is in use\n{hint}")
    assert (done.returncode, "nonsense" in done.stderr) == (1, False)


@pytest.mark.parametrize("command", ["up", "up --detach", "restore {copy}", "image ls", "status", "kubeconfig"])
@pytest.mark.parametrize("where", ["file", "proc"])
def test_an_unusable_state_directory_is_named_in_the_error(command: str, where: str, tmp_path: Path) -> None:
    state = {"file": tmp_path / "file", "proc": Path("/proc/nothing")}[where]
    copy = tmp_path / "copy.db"
    (tmp_path / "file").write_text("something else")
    Log(copy).close()
    done = yard(*command.format(copy=copy).split(), state=state, timeout=60)
    assert done.returncode == 1
    assert str(state) in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_version_prints_the_version() -> None:
    assert _run("--version") == f"yard {torchyard.__version__}\n"


def test_image_build_ls_tag_inspect_and_rm(tmp_path: Path) -> None:
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
    config = json.loads(yard("image", "inspect", "b:2", state=state).stdout)
    assert config["config"]["Entrypoint"] == ["python3", "a.py"]
    assert "Untagged" in yard("image", "rm", "a:1", state=state).stdout
    assert "library/a:1" not in yard("image", "ls", state=state).stdout


def test_doctor_reports_every_subject() -> None:
    report = _run("doctor")
    for subject in ("python:", "training environment:", "sandbox:", "pod network:"):
        assert subject in report


def test_elastic_is_the_runtimes_own_command_line() -> None:
    usage = _run("elastic", "--help")
    assert usage.startswith("usage: yard elastic ")
    for verb in ("run", "scale", "checkpoints"):
        assert verb in usage


def _run(*arguments: str) -> str:
    done = _run_unchecked(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run_unchecked(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchyard.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
