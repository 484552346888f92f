"""The plan of a run: shown and confirmed on a terminal, and printed without a server."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from tests.cli.test_jobs import call, state_of
from tests.support.yard import Yard, _command, _environment

from torchyard.api.gvr import JOBS
from torchyard.api.objects import Object
from torchyard.api.queue.names import QUEUE_NAME
from torchyard.cli.apply import ManifestObject, Plan
from torchyard.cli.confirm import _show, confirm
from torchyard.core.run.plan_text import describe_job
from torchyard.core.run.script_job import ScriptJob, script_objects


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print('trained', flush=True)\n")
    return tmp_path


def on_terminal(plane: Yard, folder: Path, *options: str, answer: str = "") -> tuple[int, str]:
    """Run a script on a terminal, answer its question, and return its exit code and what the terminal shows."""
    controller, terminal = pty.openpty()
    command = [*_command(), "run", "train.py", "--kubeconfig", str(plane.kubeconfig), *options]
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", **_environment()}
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=folder, env=environment, start_new_session=True
    ) as process:
        os.close(terminal)
        shown = b""
        try:
            while data := os.read(controller, 4096):
                shown += data
                if answer and b"Continue?" in shown:
                    os.write(controller, answer.encode())
                    answer = ""
        except OSError:  # the terminal is closed: EIO
            pass
        finally:
            os.close(controller)
    return process.returncode, shown.decode()


def test_a_terminal_shows_the_plan_and_asks(plane: Yard, project: Path) -> None:
    code, shown = on_terminal(plane, project, "--name", "asked", "--nodes", "2", "--cpu", "100m", answer="n\n")
    assert code == 1, shown
    assert "pytorchjob.kubeflow.org/asked in namespace default would be created" in shown
    for words in ("pods                 2", "program              python -u train.py", "100m cpu", "kB packed"):
        assert words in shown
    assert "nothing was changed" in shown
    assert state_of(plane, "asked") == ""
    code, shown = on_terminal(plane, project, "--name", "agreed", answer="\n")
    assert code == 0, shown
    assert "trained" in shown
    code, shown = on_terminal(plane, project, "--name", "sure", "--yes")
    assert (code, "Continue?" in shown) == (0, False), shown


def test_escape_sequences_of_a_manifest_do_not_change_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    container = {"name": "main", "image": "busybox\x1b[2Ahidden", "command": ["true"]}
    name = "x\x1b]0;title\x07\rother"
    obj = {"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": name}}
    obj["spec"] = {"template": {"spec": {"containers": [container]}}}
    target = ManifestObject(JOBS, "default", obj)
    _show(Plan(target, "replaced", obj, "-a: 1\n+a: \x1b[8m2\u202e"), obj)
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.startswith("job.batch/x?]0;title??other in namespace default would be replaced\n-a: 1\n+a: ?[8m2?\n")
    assert "busybox?[2Ahidden" in shown


def test_a_dry_run_of_the_client_needs_no_server(project: Path) -> None:
    options = ("--kubeconfig", "missing", "--name", "dry", "--nodes", "3", "--gpus", "1")
    command = [*_command(sys.executable), "run", "train.py", "--dry-run=client", *options]
    result = subprocess.run(
        command, cwd=project, env={**os.environ, **_environment()}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    files, training = yaml.safe_load_all(result.stdout)
    assert files["metadata"]["name"] == "dry-workspace"
    assert training["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
    assert "&id" not in result.stdout


def test_a_dry_run_alone_is_checked_by_the_server(plane: Yard, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {templat: {}}\n")
    assert call(plane, "run", str(tmp_path / "a.yaml"), "--dry-run=client")[0] == 0
    for option in ("--dry-run", "--dry-run=server"):
        code, output = call(plane, "run", str(tmp_path / "a.yaml"), option)
        assert code == 1
        assert "templat" in output


def test_a_plan_leaves_out_what_a_job_leaves_open() -> None:
    job = script_objects(ScriptJob("a", "train.py", ("--lr", "0.1"), env={"SECRET": "x"}, queue="q"), b"")[1]
    assert describe_job(job) == [
        ("pods", "1"),
        ("program", "python -u train.py --lr 0.1"),
        ("image", "pytorch/pytorch:latest"),
        ("environment", "SECRET"),
        ("queue", "q"),
    ]
    assert describe_job({"kind": "TrainJob", "metadata": {}, "spec": {"trainer": {}}})[0] == ("pods", "1")


def batch_job(template: Any, **spec: Any) -> Object:
    return {"kind": "Job", "metadata": {"labels": {QUEUE_NAME: "q"}}, "spec": {"template": template, **spec}}


def training(**replica: Any) -> Object:
    return {"kind": "PyTorchJob", "metadata": {}, "spec": {"pytorchReplicaSpecs": {"Worker": replica}}}


TEMPLATE = {"spec": {"containers": [{"image": "i", "command": ["python"]}]}}
DESCRIBED = [("pods", "1"), ("program", "python"), ("image", "i")]


@pytest.mark.parametrize(
    ("job", "rows"),
    [
        ({"kind": "Job", "metadata": {}, "spec": {"templat": {}}}, []),
        ({"kind": "Job", "metadata": {}, "spec": "text"}, []),
        ({"kind": "JobSet", "metadata": {"labels": ["q"]}, "spec": {"replicatedJobs": [None]}}, []),
        ({"kind": "Pod", "metadata": {}, "spec": {"containers": "text"}}, [("pods", "1")]),
        ({"kind": "TrainJob", "metadata": {}, "spec": {"trainer": None}}, [("pods", "1")]),
        (batch_job({"spec": None}), [("queue", "q")]),
        (batch_job(TEMPLATE, parallelism=None), [*DESCRIBED, ("queue", "q")]),
        (batch_job(TEMPLATE, parallelism=float("inf")), [*DESCRIBED[1:], ("queue", "q")]),
        (training(replicas=None, template=TEMPLATE), DESCRIBED),
        (training(replicas="two", template=TEMPLATE), DESCRIBED[1:]),
        (
            training(template={"spec": {"containers": [{"image": "i", "args": ["--epochs", 3], "env": ["A"]}]}}),
            [("pods", "1"), ("image", "i")],
        ),
    ],
)
def test_a_plan_leaves_out_what_the_server_is_going_to_refuse(job: Object, rows: list[tuple[str, str]]) -> None:
    assert describe_job(job) == rows


def test_ctrl_c_ends_the_question_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[str] = []

    def interrupted() -> str:
        signal.raise_signal(signal.SIGINT)
        answers.append("y\n")
        return answers[0]

    async def ask() -> bool:
        handler = signal.getsignal(signal.SIGINT)
        try:
            return await confirm(cast(Any, None), [], "default", replace=False)
        finally:
            assert signal.getsignal(signal.SIGINT) == handler

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=interrupted))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(ask())
    assert answers == []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=lambda: "\n"))
    assert asyncio.run(ask())
