"""Every daily command on one job: the same for all kinds."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.test_jobs import call, state_of
from tests.support.waiting import eventually
from tests.support.yard import Yard, _command, _environment

from torchyard.api.objects import Object

PORT = 8123
BEGUN, TICK = "begun with lr 0.1", "tick"
PATIENCE = 120.0


def use_every_command(plane: Yard, job: Object, *, ranks: int, role: str, folder: Path) -> None:
    """Run a job with every daily command.

    Its program has the argument `--lr 0.1`, prints BEGUN, then TICK again and again, and serves HTTP at PORT until it
    is asked to end.

    Args:
        plane: the plane.
        job: the job.
        ranks: how many replicas it has.
        role: the name of its last replica in commands.
        folder: where to write files.
    """
    name, kind = job["metadata"]["name"], job["kind"]
    file = folder / f"{name}.json"
    file.write_text(json.dumps(job))
    assert kind in succeed(plane, "run", str(file), "--dry-run=server")
    assert state_of(plane, name) == ""
    succeed(plane, "run", str(file), "--detach", "-y")
    _read(plane, name, kind, ranks, role)
    _act_on_a_replica(plane, name, role, folder)

    succeed(plane, "stop", name)
    eventually(lambda: state_of(plane, name) == "Suspended", f"{name} to be suspended", PATIENCE)
    succeed(plane, "resume", name)
    _wait_until_running(plane, name, ranks)

    again = f"{name}-again"
    succeed(plane, "rerun", name, "--name", again, "--set", "lr=0.2", "--detach")
    assert re.search(r"^--lr +0\.1 +0\.2$", succeed(plane, "compare", name, again), re.MULTILINE)
    assert "has not ended" in succeed(plane, "history", name)
    eventually(lambda: "begun with lr 0.2" in call(plane, "logs", again)[1], "the line of the second job", PATIENCE)
    _delete(plane, [name, again], kind)


def _read(plane: Yard, name: str, kind: str, ranks: int, role: str) -> None:
    _wait_until_running(plane, name, ranks)
    row = next(row for row in records(plane, "ps") if row["name"] == name)
    assert (row["kind"], row["state"]) == (kind, "Running")
    eventually(lambda: call(plane, "logs", name)[1].count(BEGUN) == ranks, "the line of every replica", PATIENCE)
    own = succeed(plane, "logs", name, "--rank", role, "--grep", BEGUN, "--since", "1h")
    assert own.count(BEGUN) == own.count("\n") == 1, own
    assert succeed(plane, "logs", name, "--rank", role, "--tail", "1").count("\n") == 1
    assert "Running" in succeed(plane, "why", name)
    assert {event["object"].partition("/")[0] for event in records(plane, "events", name)} >= {"pod"}

    def has_usage() -> bool:
        rows = records(plane, "top", name)
        return len(rows) >= ranks and all(row["memory"] for row in rows)

    eventually(has_usage, f"the usage of {name}", PATIENCE)


def _act_on_a_replica(plane: Yard, name: str, role: str, folder: Path) -> None:
    assert succeed(plane, "exec", name, "--rank", role, "--", "echo", "hello") == "hello\n"
    source = folder / "sent"
    source.write_text("some text")
    succeed(plane, "cp", str(source), f"{name}:/tmp/sent", "--rank", role)
    succeed(plane, "cp", f"{name}:/tmp/sent", str(folder / "received"), "--rank", role)
    assert (folder / "received").read_text() == "some text"
    with _started(plane, "attach", name, "--rank", role) as attached:
        assert attached.stdout is not None
        assert any(TICK in line for line in attached.stdout)
    with _started(plane, "port-forward", name, f":{PORT}", "--rank", role) as forwarding:
        assert forwarding.stdout is not None
        port = re.search(r"127\.0\.0\.1:(\d+) -> ", forwarding.stdout.readline())
        assert port is not None
        eventually(lambda: _answers(int(port[1])), "an answer of the job", PATIENCE)


def _delete(plane: Yard, names: list[str], kind: str) -> None:
    for name in names:
        succeed(plane, "delete", name)
    for name in names:
        _find_in_the_history(plane, name, kind)
    assert not {row["name"] for row in records(plane, "ps")} & set(names)


def _find_in_the_history(plane: Yard, name: str, kind: str) -> None:
    eventually(lambda: name in _ended(plane), f"the record of {name}", PATIENCE)
    assert _ended(plane)[name]["kind"] == kind
    eventually(lambda: "begun with lr" in call(plane, "logs", name)[1], f"the kept logs of {name}", PATIENCE)
    assert f"see `yard history {name}`" in call(plane, "why", name)[1] + call(plane, "events", name)[1]


def succeed(plane: Yard, *arguments: str) -> str:
    code, output = call(plane, *arguments)
    assert code == 0, (arguments, output)
    return output


def records(plane: Yard, *arguments: str) -> list[dict[str, Any]]:
    parsed: list[dict[str, Any]] = json.loads(succeed(plane, *arguments, "-o", "json"))
    return parsed


def _ended(plane: Yard) -> dict[str, dict[str, Any]]:
    return {record["name"]: record for record in records(plane, "history") if record.get("ended")}


def _wait_until_running(plane: Yard, name: str, ranks: int) -> None:
    def is_running() -> bool:
        line = next((line for line in call(plane, "ps")[1].splitlines() if line.startswith(f"{name} ")), "")
        return re.search(rf" Running +{ranks}/", line) is not None

    eventually(is_running, f"{ranks} replicas of {name} to run", PATIENCE)


@contextmanager
def _started(plane: Yard, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command that does not end by itself."""
    command = [*_command(), *arguments, "--kubeconfig", str(plane.kubeconfig)]
    environment = {"PATH": "/usr/bin:/bin", **_environment()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
