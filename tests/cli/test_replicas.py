"""Commands that act on a replica of a running job: exec, attach, cp, port-forward, top."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_jobs import BATCH, TRAINING, batch_job, call, state_of
from tests.cli.test_run import job
from tests.support.waiting import eventually
from tests.support.yard import Yard, _command, _environment

SERVER = "cd /tmp && exec python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", **_environment()}


@pytest.fixture(scope="module")
def training(plane: Yard) -> Iterator[str]:
    """A running job of three replicas; the first serves HTTP."""
    script = "trap 'exit 0' TERM; cd /tmp; while :; do echo tick; sleep 0.2; done"
    assert plane.server().admin.post(TRAINING, job("replicas", script)).status == 201
    eventually(lambda: "3/3" in call(plane, "ps")[1], "all replicas to run")
    yield "replicas"
    call(plane, "delete", "replicas")


def test_exec_runs_a_command_in_a_rank_and_returns_its_exit_code(plane: Yard, training: str) -> None:
    script = "echo rank $RANK; echo to stderr >&2; exit 7"
    command = [
        *_command(),
        "exec",
        training,
        "--rank",
        "1",
        "--kubeconfig",
        str(plane.kubeconfig),
        "--",
        "sh",
        "-c",
        script,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr) == (7, "rank 1\n", "to stderr\n")


def test_exec_passes_standard_input_on(plane: Yard, training: str) -> None:
    command = [*_command(), "exec", training, "-i", "--kubeconfig", str(plane.kubeconfig), "--", "sh", "-c", "wc -c"]
    text = "x" * 100_000
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT)
    assert (done.returncode, done.stdout.strip()) == (0, "100000"), done.stderr


def test_a_command_that_does_not_exist_is_an_error(plane: Yard, training: str) -> None:
    code, output = call(plane, "exec", training, "--rank", "9", "--", "true")
    assert code == 1
    assert "replicas has no rank 9" in output
    code, output = call(plane, "exec", training, "-c", "sidecar", "--", "true")
    assert "has no container sidecar" in output
    code, output = call(plane, "exec", training, "--", "/no/such/program")
    assert code == 1
    assert "/no/such/program could not be started" in output and "code: CannotStart" in output
    code, output = call(plane, "exec", training, "-o", "json", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    record = json.loads(output)[0]
    assert (code, record["exitCode"], record["stdout"], record["stderr"]) == (3, 3, "out\n", "err\n")


def test_attach_shows_what_the_process_prints_from_now_on(plane: Yard, training: str) -> None:
    command = [*_command(), "attach", training, "--rank", "2", "--kubeconfig", str(plane.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "tick\n"
        finally:
            process.terminate()


def test_files_and_directories_are_copied_both_ways(plane: Yard, training: str, tmp_path: Path) -> None:
    source = tmp_path / "data"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_bytes(bytes(range(256)) * 4000)
    (source / "link").symlink_to("deep/file")
    assert call(plane, "cp", str(source), f"{training}:/tmp", "--rank", "1")[0] == 0
    assert call(plane, "cp", str(source / "deep" / "file"), f"{training}:/tmp/other/name", "--rank", "1")[0] == 0
    target = tmp_path / "back"
    target.mkdir()
    code, output = call(plane, "cp", f"{training}:/tmp/data", str(target), "--rank", "1")
    assert code == 0, output
    assert (target / "data" / "deep" / "file").read_bytes() == (source / "deep" / "file").read_bytes()
    assert (target / "data" / "link").is_symlink()
    code, output = call(plane, "cp", f"{training}:/tmp/other/name", str(target / "renamed"), "--rank", "1")
    assert code == 0, output
    assert (target / "renamed").read_bytes() == (source / "deep" / "file").read_bytes()
    code, output = call(plane, "cp", f"{training}:/tmp/data", str(target), "--rank", "0")
    assert code == 1
    assert "No such file" in output
    assert "exactly one of them" in call(plane, "cp", "a", "b")[1]


def test_links_out_of_the_directory_are_refused(plane: Yard, training: str, tmp_path: Path) -> None:
    script = "mkdir -p /tmp/evil && ln -sf /etc/passwd /tmp/evil/link"
    assert call(plane, "exec", training, "--", "sh", "-c", script)[0] == 0
    code, output = call(plane, "cp", f"{training}:/tmp/evil", str(tmp_path))
    assert code == 1, output
    assert "code: CopyFailed" in output
    assert not (tmp_path / "evil" / "link").exists()


def test_a_port_is_forwarded(plane: Yard) -> None:
    assert plane.server().admin.post(BATCH, batch_job("serving", SERVER)).status == 201
    eventually(lambda: state_of(plane, "serving") == "Running", "the job to run")
    command = [*_command(), "port-forward", "serving", ":8123", "--kubeconfig", str(plane.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        try:
            _check_forwarding(process.stdout.readline())
        finally:
            process.terminate()
    call(plane, "delete", "serving")
    assert "is not a pair of ports" in call(plane, "port-forward", "serving", "x:1")[1]


def test_top_shows_what_each_replica_uses(plane: Yard, training: str) -> None:
    eventually(lambda: _has_usage(plane, training), "usage")
    code, output = call(plane, "top", training)
    assert code == 0
    assert output.splitlines()[0].split() == ["JOB", "REPLICA", "STATUS", "CPU", "LIMIT", "MEMORY", "LIMIT", "GPUS"]
    assert len(output.splitlines()) == 4


def _has_usage(plane: Yard, training: str) -> bool:
    rows = json.loads(call(plane, "top", training, "-o", "json")[1])
    return len(rows) == 3 and all(row["memory"] for row in rows)


def _check_forwarding(line: str) -> None:
    match = re.fullmatch(r"Forwarding from 127\.0\.0\.1:(\d+) -> serving-\w+:8123\n", line)
    assert match is not None, line

    def answers() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=10)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    eventually(answers, "the server behind the port")
    assert answers()
