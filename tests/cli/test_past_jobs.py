"""Jobs that have ended: history, logs after deletion, rerun, compare; sweeps and smoke tests."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_jobs import BATCH, ENDLESS, TRAINING, batch_job, call, state_of
from tests.cli.test_run import job, manifest
from tests.cli.test_run_script import run as run_in
from tests.support.waiting import eventually
from tests.support.yard import Yard, _command, _environment

from torchyard.cli.compare import redacted

SCRIPT = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1.0)
parser.add_argument("--epochs", type=int, default=1)
values = parser.parse_args()
print(f"loss={values.lr * 2:g} smoke={os.environ.get('TORCHYARD_SMOKE', '0')}", flush=True)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return folder


def records(plane: Yard) -> dict[str, Any]:
    return {record["name"]: record for record in json.loads(call(plane, "history", "-o", "json")[1])}


def test_a_deleted_job_keeps_its_logs_and_exit_codes(plane: Yard, tmp_path: Path) -> None:
    api = plane.server().admin
    script = 'echo rank $RANK was here loss=0.$RANK; if [ "$RANK" = 0 ]; then sleep 1; exit 3; fi'
    training = job("gone", script)
    training["spec"]["runPolicy"] = {"backoffLimit": 0}
    assert api.post(TRAINING, training).status == 201
    eventually(lambda: state_of(plane, "gone") == "Failed", "the job to fail")
    assert call(plane, "delete", "gone")[0] == 0
    eventually(lambda: state_of(plane, "gone") == "", "the job to be gone")
    eventually(lambda: call(plane, "logs", "gone")[1].count("was here") == 3, "the logs of every replica")
    assert "[worker-0] rank 1 was here" in call(plane, "logs", "gone", "--rank", "1")[1]
    assert call(plane, "logs", "gone", "--rank", "worker-1", "--grep", "nothing")[1] == ""
    assert call(plane, "logs", "gone", "--tail", "0")[1] == ""
    assert call(plane, "export", "gone", "--tensorboard", str(tmp_path))[0] == 0
    files = tmp_path.rglob("events.out.tfevents.*")
    assert sorted(file.parent.name for file in files) == ["master-0", "worker-0", "worker-1"]
    record = records(plane)["gone"]
    assert (record["state"], record["exitCode"], record["replicaCount"]) == ("Failed", 3, 3)
    code, output = call(plane, "history", "gone")
    assert code == 0
    assert re.search(r"^master-0 +Failed +3 ", output, re.MULTILINE)
    assert "gone" in call(plane, "history", "-q")[1].split()
    code, output = call(plane, "logs", "gome")
    assert code == 1
    assert "did you mean gone, which has ended?" in output
    assert "code: NotFound" in output


def test_a_job_that_is_deleted_while_it_runs_is_in_the_history(plane: Yard) -> None:
    assert plane.server().admin.post(BATCH, batch_job("halted", f"echo begun; {ENDLESS}")).status == 201
    eventually(lambda: "begun" in call(plane, "logs", "halted")[1], "the first line")
    call(plane, "delete", "halted")
    eventually(lambda: records(plane).get("halted", {}).get("state") == "Deleted", "the record")
    eventually(lambda: "begun" in call(plane, "logs", "halted")[1], "the kept log")


def test_a_comparison_shows_no_secrets() -> None:
    history = {"--tokenizer": "bpe", "--max-tokens": "512", "LR": "0.1 ", "API_KEY": "(from elsewhere)"}
    secrets = {"HF_TOKEN": "hf_abc def", "--api-key": "xyz", "AWS_SECRET_ACCESS_KEY": "a"}
    assert redacted({**history, **secrets}) == {**history, **dict.fromkeys(secrets, "(redacted)")}
    assert redacted({"DB": "redis://u:p@h/1"}) == {"DB": "redis://(redacted)@h/1"}


def test_a_script_runs_again_with_other_arguments_and_is_compared(plane: Yard, project: Path) -> None:
    code, output = run_in(plane, project, "train.py", "--name", "first", "--", "--lr", "0.5")
    assert code == 0, output
    assert "loss=1 " in output
    code, output = call(plane, "rerun", "first", "--name", "second", "--set", "lr=4", "--set", "SEED=7")
    assert code == 0, output
    assert "loss=8 " in output
    code, output = call(plane, "rerun", "second", "--name", "third", "--", "--lr", "2")
    assert code == 0, output
    assert "loss=4 " in output
    code, output = call(plane, "compare", "first", "second")
    assert code == 0, output
    assert re.search(r"^ +first +second$", output, re.MULTILINE)
    assert re.search(r"^--lr +0\.5 +4$", output, re.MULTILINE)
    assert re.search(r"^env SEED +7$", output, re.MULTILINE)
    assert re.search(r"^metric loss +1 +8$", output, re.MULTILINE)
    assert "image" not in output
    assert "image" in call(plane, "compare", "first", "second", "--all")[1]
    code, output = call(plane, "rerun", "second", "--dry-run")
    assert code == 0
    name = re.search(r"kind: PyTorchJob\nmetadata:\n(?:  .*\n)*?  name: (\S+)", output)
    assert name is not None
    assert re.fullmatch(r"second-\w{5}", name[1])
    call(plane, "delete", "first")
    eventually(lambda: state_of(plane, "first") == "", "the job to be gone")
    assert "metric loss" in call(plane, "compare", "first", "third")[1]
    code, output = call(plane, "rerun", "first")
    assert code == 1
    assert "the files of first were deleted with it" in output


def test_a_manifest_runs_again_after_it_was_deleted(plane: Yard) -> None:
    assert plane.server().admin.post(BATCH, batch_job("again", "echo once more")).status == 201
    eventually(lambda: state_of(plane, "again") == "Complete", "the job to end")
    call(plane, "delete", "again")
    eventually(lambda: state_of(plane, "again") == "", "the job to be gone")
    code, output = call(plane, "rerun", "again", "--name", "again-2")
    assert code == 0, output
    assert "once more" in output


def test_a_sweep_runs_every_combination_and_shows_the_results(plane: Yard, project: Path) -> None:
    command = [*_command(), "sweep", "train.py", "--kubeconfig", str(plane.kubeconfig), "--name", "grid"]
    command += ["--grid", "lr=3,1", "--parallel", "2", "--sort", "loss", "--", "--epochs", "1"]
    done = subprocess.run(
        command,
        cwd=project,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"PATH": "/usr/bin:/bin", **_environment()},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout.splitlines()[-3:]
    assert table[0].split() == ["INDEX", "--lr", "STATE", "EXIT", "loss", "smoke"]
    assert [line.split()[:5] for line in table[1:]] == [
        ["1", "1", "Succeeded", "0", "2"],
        ["0", "3", "Succeeded", "0", "6"],
    ]
    results = json.loads(call(plane, "sweep", "grid", "-o", "json")[1])
    assert [result["metrics"]["loss"] for result in results] == [6.0, 2.0]


def test_a_smoke_test_ends_with_the_first_step(plane: Yard, project: Path, tmp_path: Path) -> None:
    training = job("long", f"echo loss=2.5 smoke=$TORCHYARD_SMOKE; {ENDLESS}")
    code, output = call(plane, "smoke", manifest(tmp_path, training))
    assert code == 0, output
    assert "smoke test passed: first step after" in output
    assert "loss=2.5 smoke=1" in output
    assert re.search(r"pytorchjob.kubeflow.org/long-smoke-\w+ deleted", output)
    code, output = call(plane, "smoke", manifest(tmp_path, job("broken", "exit 5")))
    assert code == 5, output
    assert "smoke test failed" in output
    code, output = call(plane, "smoke", manifest(tmp_path, job("mute", ENDLESS)), "--timeout", "2")
    assert code == 124, output
