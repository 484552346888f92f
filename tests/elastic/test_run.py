"""Real workers, real kills: the model is always the undisturbed one, and no record is lost or repeated."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.elastic.conftest import PROGRAMS, Alone, digest_of

from torchyard.elastic.chaos import ChaosJob, lineage, rampage
from torchyard.elastic.checkpoint import files
from torchyard.elastic.ledger import Ledger
from torchyard.elastic.run import RunOptions

pytestmark = pytest.mark.train
LONG = ("--epochs", "12")


def options(directory: Path, *arguments: str, workers: int = 2, most: int = 4, least: int = 1) -> RunOptions:
    command = (sys.executable, str(PROGRAMS / "mlp.py"), *arguments)
    # A lease long enough for a machine that does ten other things; hung workers have their own test.
    return RunOptions(command, directory, workers=workers, least=least, most=most, lease=10.0, quiet=True)


def assert_exactly_once(directory: Path, *, records: int = 600, epochs: int = 2) -> None:
    counts = lineage(directory)
    assert len(counts) == records * epochs
    assert set(counts.values()) == {1}


def finish(arena: ChaosJob) -> str:
    (arena.options.directory / "go").touch()
    stop = arena.wait(200)
    assert stop.why == "finished", (stop, arena.output[-20:])
    return digest_of("\n".join(arena.output))


def test_two_workers_give_the_bits_of_one(tmp_path: Path, alone: Alone) -> None:
    with ChaosJob(options(tmp_path, workers=2)) as arena:
        assert finish(arena) == alone()
    assert_exactly_once(tmp_path)


def test_killed_workers_and_coordinators_change_nothing(tmp_path: Path, alone: Alone) -> None:
    with ChaosJob(options(tmp_path, "--hold", str(tmp_path / "go"), *LONG, workers=3)) as arena:
        arena.wait_step(3)
        kills = rampage(arena, seed=5, kills=8, pause=(0.05, 0.4))
        digest = finish(arena)
    assert sum(kills.values()) >= 3, "the job was over before anything was killed"
    assert digest == alone(*LONG)
    assert_exactly_once(tmp_path, epochs=12)


def test_scaling_up_and_down_happens_at_boundaries_without_repeating_a_step(tmp_path: Path, alone: Alone) -> None:
    with ChaosJob(options(tmp_path, "--hold", str(tmp_path / "go"), *LONG, workers=1)) as arena:
        arena.wait_step(3)
        arena.ask("/scale", {"workers": 3})
        arena.until(lambda status: len(status["world"]) == 3)
        arena.ask("/scale", {"workers": 2})
        arena.until(lambda status: len(status["world"]) == 2)
        assert finish(arena) == alone(*LONG)
    assert all("after 0 recomputed" in line for line in arena.output if "digest" in line)
    assert_exactly_once(tmp_path, epochs=12)


def test_a_worker_told_to_go_hands_over_and_exits_with_success(tmp_path: Path, alone: Alone) -> None:
    with ChaosJob(options(tmp_path, "--hold", str(tmp_path / "go"), *LONG)) as arena:
        arena.wait_step(3)
        name = sorted(arena.workers())[0]
        arena.signal_worker(name, signal.SIGTERM)
        arena.until(lambda status: name not in status["world"] and len(status["world"]) == 2)
        assert finish(arena) == alone(*LONG)
    assert_exactly_once(tmp_path, epochs=12)


def test_a_stopped_process_is_left_behind_and_the_survivors_keep_their_processes(tmp_path: Path, alone: Alone) -> None:
    settings = options(tmp_path, "--hold", str(tmp_path / "go"), *LONG)
    with ChaosJob(settings) as arena:
        arena.wait_step(3)
        hung, survivor = sorted(arena.workers())[:2]
        pids = arena.workers()
        arena.signal_worker(hung, signal.SIGSTOP)
        after = arena.until(lambda status: hung not in status["world"] and status["phase"] == "Running")
        arena.wait_step(after["step"] + 2)
        assert arena.workers()[survivor] == pids[survivor]
        os.kill(pids[hung], signal.SIGKILL)
        assert finish(arena) == alone(*LONG)
    assert_exactly_once(tmp_path, epochs=12)


def test_a_worker_whose_program_hangs_is_ended_and_its_stack_is_in_the_events(tmp_path: Path, alone: Alone) -> None:
    settings = replace(options(tmp_path, "--stick=-1", *LONG), hang_after=3.0)
    with ChaosJob(settings) as arena:
        arena.until(lambda status: "local-1" not in status["workers"] and status["step"] > 3)
        events = arena.ask("/events")
        assert finish(arena) == alone(*LONG)
    killed = next(event["message"] for event in events if event["reason"] == "WorkerKilled")
    assert "in loss_of" in killed
    assert_exactly_once(tmp_path, epochs=12)


def test_a_job_resumes_from_its_newest_sound_checkpoint(tmp_path: Path, alone: Alone) -> None:
    kept = tmp_path / "kept"
    settings = options(tmp_path, "--hold", str(tmp_path / "go"), "--checkpoints", str(kept), *LONG)
    with ChaosJob(settings) as arena:
        arena.wait_step(70)
        arena.until(lambda status: len(files.complete(kept)) > 1)
        for name in arena.workers():
            arena.signal_worker(name)
        arena.kill_coordinator()
        arena.end()
        arena.wait(60)
    newest = files.complete(kept)[-1]
    (newest / "skeleton.pt").write_bytes(b"torn")
    sound = files.newest_sound(kept)
    assert sound is not None
    with ChaosJob(settings) as again:
        assert finish(again) == alone(*LONG)
    ledger = Ledger(tmp_path / "ledger.db", job=tmp_path.name)
    began = [event["facts"] for event in ledger.events() if event["reason"] == "WorldBegan"]
    ledger.close()
    assert [facts["step"] for facts in began if facts["restore"]][-1] == sound[1].step
    assert_exactly_once(tmp_path, epochs=12)


def test_fast_mode_counts_every_record_once_too(tmp_path: Path) -> None:
    with ChaosJob(options(tmp_path, "--mode", "fast", "--hold", str(tmp_path / "go"), *LONG)) as arena:
        arena.wait_step(5)
        arena.signal_worker(sorted(arena.workers())[0])
        arena.until(lambda status: len(status["world"]) == 2 and status["generation"] > 2)
        (tmp_path / "go").touch()
        stop = arena.wait(200)
    assert stop.why == "finished", (stop, arena.output[-20:])
    assert_exactly_once(tmp_path, epochs=12)


def test_a_job_goes_on_from_its_directory_after_everything_was_killed(tmp_path: Path, alone: Alone) -> None:
    settings = options(tmp_path, "--hold", str(tmp_path / "go"), *LONG)
    with ChaosJob(settings) as arena:
        arena.wait_step(5)
        for name in arena.workers():
            arena.signal_worker(name)
        arena.kill_coordinator()
        arena.end()
        arena.wait(60)
    with ChaosJob(settings) as again:
        assert finish(again) == alone(*LONG)
    assert_exactly_once(tmp_path, epochs=12)


def test_a_spoilt_record_fails_the_job_with_its_traceback_and_number(tmp_path: Path) -> None:
    with ChaosJob(options(tmp_path, "--poison", "17")) as arena:
        stop = arena.wait(120)
    assert stop.why == "failed"
    assert "record 17 is spoilt" in stop.message
    assert "Traceback" in stop.message
    assert "17" in stop.message.split("records [")[1].split("]")[0]


def test_a_program_that_cannot_start_fails_the_job_with_what_it_said(tmp_path: Path) -> None:
    settings = RunOptions((sys.executable, str(tmp_path / "missing.py")), tmp_path / "job", workers=2, quiet=True)
    with ChaosJob(settings) as arena:
        stop = arena.wait(120)
    assert stop.why == "failed"
    assert "missing.py" in stop.message


def test_a_changed_dataset_is_refused_and_the_ledger_kept(tmp_path: Path) -> None:
    with ChaosJob(options(tmp_path, "--hold", str(tmp_path / "go"), workers=1)) as arena:
        arena.wait_step(5)
        arena.end()
        arena.wait(60)
    before = lineage(tmp_path)
    with ChaosJob(options(tmp_path, "--records", "500", workers=1)) as again:
        stop = again.wait(120)
    assert stop.why == "failed"
    assert "records was 600 and is now 500" in stop.message
    assert lineage(tmp_path) == before
