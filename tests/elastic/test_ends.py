"""How jobs end: leaving the loop, errors after it, full disks, stopped processes, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from tests.elastic.forked_workers import ForkServer, SmallJob
from tests.elastic.small_disk import fill, small_disk
from tests.elastic.zoo_programs import PROGRAMS, digest_of

from torchyard.elastic.chaos import ChaosJob, count_applied_records
from torchyard.elastic.checkpoint import files
from torchyard.elastic.cli import main
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.ledger import LedgerReader
from torchyard.elastic.run import RunOptions

pytestmark = pytest.mark.train
LOOP = str(PROGRAMS / "loop.py")


def options(directory: Path, *arguments: str, workers: int = 2, lease: float = 10.0) -> RunOptions:
    return RunOptions((sys.executable, LOOP, *arguments), directory, workers=workers, lease=lease, quiet=True)


@pytest.mark.parametrize(
    "arguments", [("--break-at", "5"), ("--break-at", "5", "--only-rank", "1"), ("--exit-at", "5")]
)
def test_leaving_the_loop_ends_the_job_with_the_step_of_all_workers(
    tmp_path: Path, fork_server: ForkServer, arguments: tuple[str, ...]
) -> None:
    job = SmallJob(fork_server, [LOOP, *arguments], tmp_path, workers=2)
    output = job.finish()
    outcome = job.server.coordinator.outcome
    assert outcome is not None
    assert outcome.step == 5
    assert output.count("exit handler of worker-") == 2
    if "--break-at" in arguments:
        assert output.count("digest") == 2, output
        assert digest_of(output) == _alone(fork_server, tmp_path, "--break-at", "5")
    assert set(count_applied_records(tmp_path).values()) == {1}


def _alone(server: ForkServer, folder: Path, *arguments: str) -> str:
    output = folder / "alone"
    server.wait(server.fork([LOOP, *arguments], {"TORCHYARD_ELASTIC_COORDINATOR": ""}, output))
    return digest_of(output.read_text())


def test_a_program_that_leaves_its_loop_is_not_started_again(tmp_path: Path) -> None:
    with ChaosJob(options(tmp_path, "--break-at", "5")) as chaos:
        stop = chaos.wait(120)
    assert (stop.cause, stop.step) == ("finished", 5), (stop, chaos.output)
    started = [event for event in LedgerReader(tmp_path / "ledger.db").events() if event["reason"] == "WorkerStarted"]
    assert len(started) == 2


def test_a_second_training_that_is_not_declared_is_refused_and_the_job_says_so(tmp_path: Path) -> None:
    with ChaosJob(options(tmp_path, "--twice", workers=1)) as chaos:
        stop = chaos.wait(120)
    assert stop.cause == "failed", (stop, chaos.output)
    assert "local-0 exited with code 1 after it" in stop.message
    assert any("this is training 2 of the program, but the job ends with training 1" in line for line in chaos.output)


def test_an_error_after_the_training_is_not_hidden_and_long_evaluations_are_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchyard.elastic.agent.agent.EXIT_WITHIN", 1.0)
    with ChaosJob(options(tmp_path, "--fail-after", "--wait-after", "3", workers=1)) as chaos:
        stop = chaos.wait(120)
    assert stop.cause == "failed", (stop, chaos.output)
    assert "the training finished" in stop.message
    assert any("the evaluation failed" in line for line in chaos.output)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--diverge", "7", "--mode", "strict"),
            "the states of the workers differ after step 10: model.weight of worker-",
        ),
        (("--diverge", "7", "--mode", "fast"), "what to do: change parameters only through the optimizer"),
        (("--micro-batches", "1"), "the job has 2 workers, but micro_batches is 1"),
    ],
)
def test_a_job_that_cannot_be_right_ends_and_says_why(
    tmp_path: Path, fork_server: ForkServer, arguments: tuple[str, ...], words: str
) -> None:
    job = SmallJob(fork_server, [LOOP, *arguments], tmp_path, workers=2)
    for pid in job.pids.values():
        assert fork_server.wait(pid)
    outcome = job.server.coordinator.outcome
    job.close()
    assert outcome is not None
    assert outcome.cause == "failed"
    assert words in outcome.message


def test_checkpoints_that_cannot_be_saved_fail_the_job_and_kill_no_worker(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    """On a full disk; where this process may not mount one, in a directory that cannot be created."""
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            (tmp_path / "file").touch()
        else:
            fill(disk / "filler")
        kept = disk / "kept" if disk else tmp_path / "file" / "kept"
        job = SmallJob(fork_server, [LOOP, "--checkpoints", str(kept)], tmp_path, workers=2)
        codes = [fork_server.wait(pid) for pid in job.pids.values()]
        outcome = job.server.coordinator.outcome
        job.close()
        left = [path for path in kept.rglob("*") if path.is_file()]
    assert outcome is not None
    assert (outcome.cause, codes) == ("failed", [1, 1])
    assert "the checkpoint of step 24 could not be saved" in outcome.message
    assert disk is None or "No space left on device" in outcome.message
    assert not left


def test_a_disk_that_is_full_for_a_while_costs_only_its_checkpoints(tmp_path: Path, fork_server: ForkServer) -> None:
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("this process may not mount a small disk")
        fill(disk / "filler")
        program = [LOOP, "--checkpoints", str(disk / "kept"), "--hold", str(tmp_path / "go")]
        job = SmallJob(fork_server, program, tmp_path, workers=2)
        job.wait_until(lambda: "checkpoint not saved: step=4" in job.output.read_text())
        (disk / "filler").unlink()
        output = job.finish()
        saved = files.newest_valid(disk / "kept")
        incomplete = list((disk / "kept").glob("*.writing"))
    assert len(job.pids) == 2
    assert digest_of(output) == _alone(fork_server, tmp_path)
    assert saved is not None
    assert saved[1].step == 24
    assert not incomplete


def test_every_checkpoint_is_saved_also_while_the_writer_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, LOOP, "--checkpoints", str(tmp_path), "--every", "2"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "not saved" not in done.stderr, done.stderr
    assert [folder.name[-2:] for folder in files.list_checkpoints(tmp_path)] == ["20", "22", "24"]


def test_an_incomplete_checkpoint_of_a_dead_writer_is_removed(tmp_path: Path) -> None:
    abandoned, used = tmp_path / "step-0000000003.1.writing", tmp_path / "step-0000000004.1.writing"
    abandoned.mkdir()
    used.mkdir()
    lock = files.lock_directory(used)
    assert files.remove_abandoned(tmp_path) == [abandoned]
    os.close(lock)
    assert files.remove_abandoned(tmp_path) == [used]


def test_a_stopped_coordinator_is_replaced_and_recovery_goes_on(tmp_path: Path, fork_server: ForkServer) -> None:
    with ChaosJob(options(tmp_path, "--hold", str(tmp_path / "go"), lease=2.0)) as chaos:
        chaos.wait_step(2)
        pid = chaos.coordinator()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        chaos.signal_worker("local-0")
        chaos.wait_until(lambda status: "local-0" not in status["world"] and status["phase"] == "Running", seconds=60)
        (tmp_path / "go").touch()
        stop = chaos.wait(120)
    assert stop.cause == "finished", (stop, chaos.output)
    assert digest_of("\n".join(chaos.output)) == _alone(fork_server, tmp_path)


def test_an_interrupted_job_ends_without_tracebacks_and_says_where_it_continues(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchyard.elastic", "run", "-n", "2", "--dir", str(tmp_path / "job"), "--"]
    program = [sys.executable, LOOP, "--hold", str(tmp_path / "go")]
    with (tmp_path / "output").open("w") as output:
        job = subprocess.Popen([*command, *program], stdout=output, stderr=output, start_new_session=True)
        try:
            _wait_for_status(tmp_path / "job", "Running")
            os.killpg(job.pid, signal.SIGINT)  # as a terminal does
            assert job.wait(60) == 130
        finally:
            job.kill()
            job.wait()
    text = (tmp_path / "output").read_text()
    assert "Traceback" not in text
    assert "interrupted; no checkpoint was saved: the same command starts again from the beginning" in text


def _wait_for_status(directory: Path, phase: str) -> None:
    deadline = time.monotonic() + 120
    command = [sys.executable, "-m", "torchyard.elastic", "status", "--dir", str(directory)]
    while time.monotonic() < deadline:
        if phase in subprocess.run(command, capture_output=True, text=True, check=False).stdout:
            return
        time.sleep(0.2)
    raise TimeoutError(f"the job did not reach the phase {phase}")


def test_status_and_events_work_after_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints = tmp_path / "kept"
    with ChaosJob(options(tmp_path / "job", "--checkpoints", str(checkpoints), workers=1)) as chaos:
        assert chaos.wait(120).cause == "finished"
    assert main(["status", "--dir", str(tmp_path / "job")]) == 0
    status = capsys.readouterr().out
    assert re.search(r"phase +Finished", status)
    assert "24 of 24" in status
    assert f"step 24 at {checkpoints}" in status
    assert main(["events", "--dir", str(tmp_path / "job")]) == 0
    assert "JobFinished" in capsys.readouterr().out
    assert json.loads((tmp_path / "job" / "job.json").read_text())["run"]


def test_a_worker_that_waits_for_the_end_and_is_set_back_gives_its_place_to_another() -> None:
    """It has left its loop, and would never compute the steps that are missing."""
    runtime_class = pytest.importorskip("torchyard.elastic.world.runtime").WorkerRuntime
    client = MagicMock()
    client.wait_stop_or_rendezvous.return_value = None
    runtime = MagicMock(spec=runtime_class, client=client, state=MagicMock(), fence=None, step=15)
    runtime.rendezvous.side_effect = lambda: setattr(runtime, "step", 9)
    with pytest.raises(ElasticError, match="ended its loop at step 15, but the job continues from step 9"):
        runtime_class.finish(runtime)
