"""Real workers and real kills: the model is always that of an undisturbed run, and every record counts once."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.elastic.conftest import Alone
from tests.elastic.zoo_programs import PROGRAMS, digest_of

from torchyard.elastic.chaos import ChaosJob, count_applied_records, kill_randomly
from torchyard.elastic.checkpoint import files
from torchyard.elastic.ledger import Ledger
from torchyard.elastic.run import RunOptions

pytestmark = pytest.mark.train
LONG = ("--epochs", "12")


def options(
    directory: Path, *arguments: str, workers: int = 2, max_workers: int = 4, min_workers: int = 1
) -> RunOptions:
    command = (sys.executable, str(PROGRAMS / "mlp.py"), *arguments)
    # The lease is long enough for a busy machine; hung workers have their own test.
    return RunOptions(
        command, directory, workers=workers, min_workers=min_workers, max_workers=max_workers, lease=10.0, quiet=True
    )


def assert_exactly_once(directory: Path, *, records: int = 600, epochs: int = 2) -> None:
    counts = count_applied_records(directory)
    assert len(counts) == records * epochs
    assert set(counts.values()) == {1}


def finish(chaos: ChaosJob) -> str:
    (chaos.options.directory / "go").touch()
    stop = chaos.wait(200)
    assert stop.cause == "finished", (stop, chaos.output[-20:])
    return digest_of("\n".join(chaos.output))


def test_two_workers_give_the_bits_of_one(tmp_path: Path, alone: Alone) -> None:
    with ChaosJob(options(tmp_path, workers=2)) as chaos:
        assert finish(chaos) == alone()
    assert_exactly_once(tmp_path)


def test_killed_workers_and_coordinators_change_nothing(tmp_path: Path, alone: Alone) -> None:
    with ChaosJob(options(tmp_path, "--hold", str(tmp_path / "go"), *LONG, workers=3)) as chaos:
        chaos.wait_step(3)
        kills = kill_randomly(chaos, seed=5, kills=8, pause=(0.05, 0.4))
        digest = finish(chaos)
    assert sum(kills.values()) >= 3, "the job ended before anything was killed"
    assert digest == alone(*LONG)
    assert_exactly_once(tmp_path, epochs=12)


def test_scaling_up_and_down_happens_at_boundaries_without_repeating_a_step(tmp_path: Path, alone: Alone) -> None:
    with ChaosJob(options(tmp_path, "--hold", str(tmp_path / "go"), *LONG, workers=1)) as chaos:
        chaos.wait_step(3)
        chaos.request("/scale", {"workers": 3})
        chaos.wait_until(lambda status: len(status["world"]) == 3)
        chaos.request("/scale", {"workers": 2})
        chaos.wait_until(lambda status: len(status["world"]) == 2)
        assert finish(chaos) == alone(*LONG)
    assert all("after 0 recomputed" in line for line in chaos.output if "digest" in line)
    assert_exactly_once(tmp_path, epochs=12)


def test_a_worker_that_gets_sigterm_hands_over_and_exits_with_success(tmp_path: Path, alone: Alone) -> None:
    with ChaosJob(options(tmp_path, "--hold", str(tmp_path / "go"), *LONG)) as chaos:
        chaos.wait_step(3)
        name = sorted(chaos.workers())[0]
        chaos.signal_worker(name, signal.SIGTERM)
        chaos.wait_until(lambda status: name not in status["world"] and len(status["world"]) == 2)
        assert finish(chaos) == alone(*LONG)
    assert_exactly_once(tmp_path, epochs=12)


def test_a_stopped_worker_is_expelled_and_the_survivors_keep_their_processes(tmp_path: Path, alone: Alone) -> None:
    settings = options(tmp_path, "--hold", str(tmp_path / "go"), *LONG)
    with ChaosJob(settings) as chaos:
        chaos.wait_step(3)
        hung, survivor = sorted(chaos.workers())[:2]
        pids = chaos.workers()
        chaos.signal_worker(hung, signal.SIGSTOP)
        after = chaos.wait_until(lambda status: hung not in status["world"] and status["phase"] == "Running")
        chaos.wait_step(after["step"] + 2)
        assert chaos.workers()[survivor] == pids[survivor]
        os.kill(pids[hung], signal.SIGKILL)
        assert finish(chaos) == alone(*LONG)
    assert_exactly_once(tmp_path, epochs=12)


def test_a_hung_worker_is_killed_and_its_stack_is_in_the_events(tmp_path: Path, alone: Alone) -> None:
    settings = replace(options(tmp_path, "--stick=-1", *LONG), hang_after=3.0)
    with ChaosJob(settings) as chaos:
        chaos.wait_until(lambda status: "local-1" not in status["workers"] and status["step"] > 3)
        events = chaos.request("/events")
        assert finish(chaos) == alone(*LONG)
    message = next(event["message"] for event in events if event["reason"] == "WorkerKilled")
    assert "in loss_of" in message
    assert_exactly_once(tmp_path, epochs=12)


def test_a_job_resumes_from_its_newest_valid_checkpoint(tmp_path: Path, alone: Alone) -> None:
    checkpoints = tmp_path / "kept"
    settings = options(tmp_path, "--hold", str(tmp_path / "go"), "--checkpoints", str(checkpoints), *LONG)
    with ChaosJob(settings) as chaos:
        chaos.wait_step(70)
        chaos.wait_until(lambda status: len(files.list_checkpoints(checkpoints)) > 1)
        for name in chaos.workers():
            chaos.signal_worker(name)
        chaos.kill_coordinator()
        chaos.shut_down()
        chaos.wait(60)
    newest = files.list_checkpoints(checkpoints)[-1]
    (newest / "state.json").write_bytes(b"torn")
    newest_valid = files.newest_valid(checkpoints)
    assert newest_valid is not None
    with ChaosJob(settings) as again:
        assert finish(again) == alone(*LONG)
    ledger = Ledger(tmp_path / "ledger.db", job=tmp_path.name)
    worlds = [event["facts"] for event in ledger.events() if event["reason"] == "WorldBegan"]
    ledger.close()
    assert [facts["step"] for facts in worlds if facts["restore"]][-1] == newest_valid[1].step
    assert_exactly_once(tmp_path, epochs=12)


def test_fast_mode_counts_every_record_once_too(tmp_path: Path) -> None:
    with ChaosJob(options(tmp_path, "--mode", "fast", "--hold", str(tmp_path / "go"), *LONG)) as chaos:
        chaos.wait_step(5)
        chaos.signal_worker(sorted(chaos.workers())[0])
        chaos.wait_until(lambda status: len(status["world"]) == 2 and status["generation"] > 2)
        (tmp_path / "go").touch()
        stop = chaos.wait(200)
    assert stop.cause == "finished", (stop, chaos.output[-20:])
    assert_exactly_once(tmp_path, epochs=12)


def test_a_job_resumes_from_its_directory_after_everything_was_killed(tmp_path: Path, alone: Alone) -> None:
    settings = options(tmp_path, "--hold", str(tmp_path / "go"), *LONG)
    with ChaosJob(settings) as chaos:
        chaos.wait_step(5)
        for name in chaos.workers():
            chaos.signal_worker(name)
        chaos.kill_coordinator()
        chaos.shut_down()
        chaos.wait(60)
    with ChaosJob(settings) as again:
        assert finish(again) == alone(*LONG)
    assert_exactly_once(tmp_path, epochs=12)


def test_a_record_that_raises_fails_the_job_with_its_traceback_and_number(tmp_path: Path) -> None:
    with ChaosJob(options(tmp_path, "--poison", "17")) as chaos:
        stop = chaos.wait(120)
    assert stop.cause == "failed"
    assert "record 17 is spoilt" in stop.message
    assert "Traceback" in stop.message
    assert "17" in stop.message.split("records [")[1].split("]")[0]


def test_a_program_that_cannot_start_fails_the_job_with_its_output(tmp_path: Path) -> None:
    settings = RunOptions((sys.executable, str(tmp_path / "missing.py")), tmp_path / "job", workers=2, quiet=True)
    with ChaosJob(settings) as chaos:
        stop = chaos.wait(120)
    assert stop.cause == "failed"
    assert "missing.py" in stop.message


def test_a_changed_dataset_is_refused_and_the_ledger_is_unchanged(tmp_path: Path) -> None:
    with ChaosJob(options(tmp_path, "--hold", str(tmp_path / "go"), workers=1)) as chaos:
        chaos.wait_step(5)
        chaos.shut_down()
        chaos.wait(60)
    before = count_applied_records(tmp_path)
    with ChaosJob(options(tmp_path, "--records", "500", workers=1)) as again:
        stop = again.wait(120)
    assert stop.cause == "failed"
    assert "records was 600 and is now 500" in stop.message
    assert count_applied_records(tmp_path) == before
