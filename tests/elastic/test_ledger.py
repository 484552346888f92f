"""The ledger: after any sequence of records, crashes and reconciliations, the rows are 1..n, each once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.ledger import Ledger
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import Fence

SAMPLER = StepSampler(records=1000, micro_size=5, micro_batches=2, epochs=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    ledger = Ledger(path, job="mnist")
    ledger.fix_sampler(SAMPLER)
    yield ledger
    ledger.close()


def test_rows_carry_the_positions_of_their_step(ledger: Ledger) -> None:
    ledger.record_steps(Fence(1, 1), [(1, 0.5, ""), (101, 0.4, "abc")], world=2, by="w0")
    first, second = ledger.rows()
    assert (first.step, first.epoch, first.lo, first.hi, first.loss) == (1, 0, 0, 10, 0.5)
    assert (second.step, second.epoch, second.lo, second.hi, second.digest) == (101, 1, 0, 10, "abc")


def test_reconcile_fills_in_missing_rows_and_removes_rows_beyond_the_agreed_step(ledger: Ledger) -> None:
    ledger.record_steps(Fence(1, 1), [(1, 0.5, ""), (2, 0.4, ""), (5, 0.3, ""), (6, 0.2, "")], world=2, by="w0")
    assert ledger.reconcile(Fence(1, 2), 5, members=("w1",), reason="w0 died") == (1, 2)
    assert [row.step for row in ledger.rows()] == [1, 2, 3, 4, 5]
    assert [row.loss for row in ledger.rows()] == [0.5, 0.4, None, None, 0.3]


def test_a_late_row_of_an_older_world_does_not_replace_a_newer_one(ledger: Ledger) -> None:
    ledger.record_steps(Fence(2, 5), [(1, 0.2, "new")], world=1, by="w1")
    ledger.record_steps(Fence(1, 9), [(1, 0.9, "old")], world=2, by="w0")
    assert [row.digest for row in ledger.rows()] == ["new"]


@given(st.lists(st.tuples(st.sampled_from(["apply", "lose", "reform"]), st.integers(1, 4)), max_size=40))
@settings(max_examples=40, deadline=None)
def test_rows_are_complete_and_unique_after_any_history(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    ledger = Ledger(path, job="j")
    ledger.fix_sampler(SAMPLER)
    applied, generation = 0, 1
    for event, amount in history:
        if event == "apply":
            for step in range(applied + 1, applied + amount + 1):
                # One worker tells, and its messages may die with it.
                if step % 3:
                    ledger.record_steps(Fence(ledger.incarnation, generation), [(step, 1.0, "")], world=2, by="w")
            applied += amount
        elif event == "lose":
            ledger.close()
            ledger = Ledger(path, job="j")
        else:
            applied = max(0, applied - amount + 1)
            generation += 1
            ledger.reconcile(Fence(ledger.incarnation, generation), applied, members=("w",), reason="")
            assert [row.step for row in ledger.rows()] == list(range(1, applied + 1))
    ledger.reconcile(Fence(ledger.incarnation, generation + 1), applied, members=("w",), reason="")
    assert [row.step for row in ledger.rows()] == list(range(1, applied + 1))
    ledger.close()


def test_every_opening_is_a_new_incarnation(path: Path) -> None:
    for expected in (1, 2, 3):
        ledger = Ledger(path, job="mnist")
        assert ledger.incarnation == expected
        ledger.close()


def test_two_coordinators_cannot_use_one_ledger(path: Path, ledger: Ledger) -> None:
    with pytest.raises(ElasticError, match="another coordinator uses"):
        Ledger(path, job="mnist")


def test_a_ledger_of_another_job_is_refused_and_left_alone(path: Path) -> None:
    Ledger(path, job="mnist").close()
    with pytest.raises(ElasticError, match="belongs to job 'mnist'"):
        Ledger(path, job="other")
    again = Ledger(path, job="mnist")
    assert again.incarnation == 2
    again.close()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "foreign"])
def test_a_damaged_or_foreign_file_is_refused_and_not_overwritten(path: Path, damage: str) -> None:
    path.parent.mkdir(parents=True)
    if damage == "garbage":
        path.write_bytes(b"not a database at all" * 500)
    elif damage == "foreign":
        with sqlite3.connect(path) as db:
            db.execute("create table theirs(x)")
        db.close()
    else:
        ledger = Ledger(path, job="mnist")
        ledger.fix_sampler(SAMPLER)
        ledger.record_steps(Fence(1, 1), [(s, 0.0, "x" * 60) for s in range(1, 150)], world=1, by="w")
        ledger.close()
        path.write_bytes(path.read_bytes()[:9000])
    before = path.read_bytes()
    with pytest.raises(ElasticError) as caught:
        Ledger(path, job="mnist")
    assert caught.value.code in {"DamagedLedger", "ForeignLedger"}
    assert caught.value.hint
    assert path.read_bytes() == before


def test_a_crash_during_the_creation_of_a_ledger_leaves_a_usable_file(path: Path) -> None:
    path.parent.mkdir(parents=True)
    db = sqlite3.connect(path)
    db.execute("pragma journal_mode=wal")
    db.close()
    Ledger(path, job="mnist").close()


def test_a_changed_dataset_is_named_in_the_error(path: Path, ledger: Ledger) -> None:
    with pytest.raises(ElasticError, match="records was 1000 and is now 999") as caught:
        ledger.fix_sampler(StepSampler(records=999, micro_size=5, micro_batches=2, epochs=2))
    assert "dataset" in caught.value.hint


def test_worlds_checkpoints_events_and_notes_survive(path: Path) -> None:
    ledger = Ledger(path, job="mnist")
    ledger.fix_sampler(SAMPLER)
    ledger.reconcile(Fence(1, 4), 7, members=("a", "b"), reason="start")
    ledger.add_checkpoint(7, "ck/7", "cafe")
    ledger.add_events([(1.0, "Started", "a world of 2", {"world": 2})])
    ledger.put_note("target", 3)
    ledger.close()
    again = Ledger(path, job="mnist")
    assert again.last_world() == (Fence(1, 4), ("a", "b"))
    assert again.checkpoints() == [(7, "ck/7", "cafe")]
    assert [event["facts"] for event in again.events()] == [{"world": 2}]
    assert again.get_note("target") == 3
    assert again.sampler == SAMPLER
    again.close()


def test_transactions_of_two_threads_follow_each_other(ledger: Ledger) -> None:
    """The coordinator stores notes and the sampler while its writer thread stores events."""
    begun, errors = threading.Event(), []

    def write_notes() -> None:
        begun.wait()
        try:
            ledger.put_note("key", 1)
        except sqlite3.Error as error:
            errors.append(error)

    thread = threading.Thread(target=write_notes)
    thread.start()
    with ledger.transaction():
        begun.set()
        thread.join(0.2)  # it waits for this transaction
    thread.join()
    assert errors == []
    assert ledger.get_note("key") == 1
