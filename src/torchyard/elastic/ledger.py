"""The ledger: one durable row for every step that the model contains. SQLite; no network, no torch.

Its invariant: after any crash the rows 1..n are exactly the steps whose records the model has consumed, each once.
Rows beyond the step that the survivors agree on are removed, and missing rows below it are filled in. Both follow from
the sampler alone, so a dead worker is not needed for them.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import NO_FENCE, AppliedRow, Fence

FORMAT = 1
_APPLICATION_ID = 0x59415244
_SCHEMA = """
create table meta(key text primary key, value text not null) without rowid;
create table steps(
    step integer primary key, epoch integer not null, lo integer not null, hi integer not null,
    incarnation integer not null, generation integer not null, world integer not null,
    applied_by text not null, loss real, digest text not null);
create table worlds(
    incarnation integer not null, generation integer not null, at real not null, step integer not null,
    members text not null, reason text not null, primary key(incarnation, generation)) without rowid;
create table checkpoints(step integer primary key, path text not null, sha256 text not null, at real not null);
create table events(
    id integer primary key, at real not null, reason text not null, message text not null, facts text not null);
"""

_FINISHED_STEPS = """create table if not exists finished_steps(
    training integer not null, step integer not null, epoch integer not null, lo integer not null, hi integer not null,
    primary key(training, step)) without rowid"""


class FinishedTraining(TypedDict):
    """A finished training of a program that has several: its settings, and its last step."""

    sampler: dict[str, Any]
    config: dict[str, Any]
    step: int
    incarnation: int


class LedgerEvent(TypedDict):
    """An entry of the event log; `at` is seconds since the epoch."""

    id: int
    at: float
    reason: str
    message: str
    facts: dict[str, Any]


class LedgerRow(NamedTuple):
    """One applied step: its positions [lo, hi) in its epoch, and in which world it was applied and by which worker."""

    step: int
    epoch: int
    lo: int
    hi: int
    fence: Fence
    world: int
    applied_by: str
    loss: float | None
    digest: str


class Ledger:
    """The ledger of one job. Opening it locks the file for this process and begins a new incarnation."""

    def __init__(self, path: Path, *, job: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = _lock(path)
        self._writing = threading.Lock()  # the coordinator fixes the sampler while its writer thread writes events
        try:
            self._db = _open(path)
            self._sampler: StepSampler | None = None
            self._begin_incarnation(job)
        except BaseException:
            os.close(self._lock)
            raise

    def _begin_incarnation(self, job: str) -> None:
        owner = self._meta("job")
        if owner is not None and owner != job:
            raise ElasticError(
                "ForeignLedger",
                f"{self.path} belongs to job {owner!r}, not to {job!r}",
                hint="use a separate directory for this job; nothing was changed",
            )
        stored = self._meta("order")
        if stored is not None:
            self._sampler = StepSampler(**json.loads(stored))
        self._finished_trainings: list[FinishedTraining] = self.get_note("finished trainings", [])
        self.incarnation = int(self._meta("incarnation") or 0) + 1
        with self.transaction():
            self._put("job", job)
            self._put("incarnation", str(self.incarnation))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._writing:
            self._db.execute("begin immediate")
            try:
                yield
            except BaseException:
                self._db.execute("rollback")
                raise
            self._db.execute("commit")

    def _meta(self, key: str) -> str | None:
        row = self._db.execute("select value from meta where key=?", (key,)).fetchone()
        return row[0] if row else None

    def _put(self, key: str, value: str) -> None:
        self._db.execute("insert or replace into meta values(?,?)", (key, value))

    def put_note(self, key: str, value: Any) -> None:
        """Store a value that the next incarnation needs."""
        with self.transaction():
            self._put("note:" + key, json.dumps(value))

    def get_note(self, key: str, default: Any = None) -> Any:
        stored = self._meta("note:" + key)
        return default if stored is None else json.loads(stored)

    @property
    def sampler(self) -> StepSampler | None:
        return self._sampler

    def fix_sampler(self, sampler: StepSampler, *, extend: bool = False) -> None:
        """Store the first worker's sampler for the life of the ledger, or raise if a later worker's differs.

        Args:
            sampler: the sampler of a worker.
            extend: whether it may have another number of epochs: the records of a step do not depend on it.
        """
        known = self._sampler
        if extend and known is not None and sampler.steps >= self.last_step():
            known = None if replace(known, epochs=sampler.epochs) == sampler else known
        if known is None:
            with self.transaction():
                self._put("order", json.dumps({name: getattr(sampler, name) for name in StepSampler.__slots__}))
            self._sampler = sampler
            return
        if sampler == known:
            return
        changes = [
            f"{name} was {getattr(known, name)} and is now {getattr(sampler, name)}"
            for name in StepSampler.__slots__
            if getattr(sampler, name) != getattr(known, name)
        ]
        hint = "restore the settings to resume this job, or start again with --fresh or in a new job directory"
        if known.records != sampler.records:
            hint = "restore the dataset that this job began with, or use a new job directory for the new dataset"
        raise ElasticError("OrderChanged", "the data order of a job cannot change: " + "; ".join(changes), hint=hint)

    @property
    def finished_trainings(self) -> list[FinishedTraining]:
        """The trainings before the present one, in order."""
        return list(self._finished_trainings)

    def end_training(self, step: int, config: dict[str, Any]) -> None:
        """Set the rows of the present training aside, and begin the next, which has settings of its own."""
        settings = {name: getattr(self._require_sampler(), name) for name in StepSampler.__slots__}
        ended = FinishedTraining(sampler=settings, config=config, step=step, incarnation=self.incarnation)
        finished = [*self._finished_trainings, ended]
        with self.transaction():
            self._db.execute(_FINISHED_STEPS)
            self._db.execute("insert into finished_steps select ?, step, epoch, lo, hi from steps", (len(finished),))
            self._begin_training(finished)

    def reopen_training(self, number: int) -> None:
        """Return to a finished training whose last state is lost: it and all later ones are to be trained again."""
        with self.transaction():
            self._db.execute(_FINISHED_STEPS)
            self._db.execute("delete from finished_steps where training>=?", (number,))
            self._begin_training(self._finished_trainings[: number - 1])

    def _begin_training(self, finished: list[FinishedTraining]) -> None:
        """Begin a training without steps, in a transaction of the caller."""
        for table in ("steps", "worlds"):
            self._db.execute(f"delete from {table}")  # noqa: S608  # constant names
        self._db.execute("delete from meta where key='order'")
        self._put("note:finished trainings", json.dumps(finished))
        self._put("note:config", "{}")
        self._finished_trainings, self._sampler = finished, None

    def finished_rows(self, training: int) -> list[tuple[int, int, int, int]]:
        """Return the step, the epoch and the positions [lo, hi) of every step of a finished training."""
        return self._db.execute(
            "select step, epoch, lo, hi from finished_steps where training=? order by step", (training,)
        ).fetchall()

    def _require_sampler(self) -> StepSampler:
        if self._sampler is None:
            raise ElasticError("NoOrder", "the data order of this job is unknown: no worker has connected yet")
        return self._sampler

    def record_steps(self, fence: Fence, rows: Iterable[AppliedRow], *, world: int, by: str) -> None:
        """Record applied steps. A row of a newer world is not replaced; to repeat a row is harmless."""
        sampler = self._require_sampler()
        with self.transaction():
            for step, loss, digest in rows:
                self._write(sampler, LedgerRow(step, *_bounds(sampler, step), fence, world, by, loss, digest))

    def _write(self, sampler: StepSampler, row: LedgerRow) -> None:
        self._db.execute(
            "insert into steps values(?,?,?,?,?,?,?,?,?,?) on conflict(step) do update set loss=excluded.loss, "
            "digest=excluded.digest, applied_by=excluded.applied_by, world=excluded.world, "
            "incarnation=excluded.incarnation, generation=excluded.generation "
            "where (excluded.incarnation, excluded.generation) >= (steps.incarnation, steps.generation)",
            (*row[:4], *row.fence, *row[5:]),
        )

    def reconcile(self, fence: Fence, agreed: int, *, members: tuple[str, ...], reason: str) -> tuple[int, int]:
        """Begin a world after step `agreed`: remove the rows beyond it, and fill in the missing rows below it.

        Returns:
            how many rows were removed, and how many were filled in.
        """
        sampler = self._require_sampler()
        with self.transaction():
            removed = self._db.execute("delete from steps where step>?", (agreed,)).rowcount
            present = (
                {step for (step,) in self._db.execute("select step from steps")} if self.count() < agreed else None
            )
            filled = 0
            if present is not None:
                for step in range(1, agreed + 1):
                    if step not in present:
                        filled += 1
                        self._write(
                            sampler, LedgerRow(step, *_bounds(sampler, step), fence, len(members), "", None, "")
                        )
            self._db.execute(
                "insert or replace into worlds values(?,?,?,?,?,?)",
                (*fence, time.time(), agreed, json.dumps(members), reason),
            )
        return removed, filled

    def count(self) -> int:
        return int(self._db.execute("select count(*) from steps").fetchone()[0])

    def last_step(self) -> int:
        return int(self._db.execute("select coalesce(max(step),0) from steps").fetchone()[0])

    def last_world(self) -> tuple[Fence, tuple[str, ...]]:
        row = self._db.execute(
            "select incarnation, generation, members from worlds order by incarnation desc, generation desc limit 1"
        ).fetchone()
        return (Fence(row[0], row[1]), tuple(json.loads(row[2]))) if row else (NO_FENCE, ())

    def rows(self, start: int = 1, stop: int | None = None, *, limit: int = -1) -> Iterator[LedgerRow]:
        """Iterate over the rows of the steps [start, stop); -1 is no limit."""
        cursor = self._db.execute(
            "select * from steps where step>=? and step<? order by step limit ?",
            (start, (1 << 62) if stop is None else stop, limit),
        )
        for row in cursor:
            yield LedgerRow(row[0], row[1], row[2], row[3], Fence(row[4], row[5]), row[6], row[7], row[8], row[9])

    def add_checkpoint(self, step: int, path: str, sha256: str) -> None:
        with self.transaction():
            self._db.execute("insert or replace into checkpoints values(?,?,?,?)", (step, path, sha256, time.time()))

    def checkpoints(self) -> list[tuple[int, str, str]]:
        return self._db.execute("select step, path, sha256 from checkpoints order by step").fetchall()

    def add_events(self, events: Iterable[tuple[float, str, str, dict[str, Any]]]) -> None:
        with self.transaction():
            self._db.executemany(
                "insert into events(at,reason,message,facts) values(?,?,?,?)",
                [(at, reason, message, json.dumps(facts)) for at, reason, message, facts in events],
            )

    def events(self, after: int = 0, limit: int = 1000) -> list[LedgerEvent]:
        rows = self._db.execute("select * from events where id>? order by id desc limit ?", (after, limit)).fetchall()
        return [
            {"id": row[0], "at": row[1], "reason": row[2], "message": row[3], "facts": json.loads(row[4])}
            for row in reversed(rows)
        ]

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)


class LedgerReader:
    """Reads the ledger of a job that does not run. It locks nothing and changes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _read(self, query: str) -> list[Any]:
        try:
            with closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                return db.execute(query).fetchall()
        except sqlite3.Error as error:
            raise ElasticError(
                "DamagedLedger", f"{self._path} cannot be read: {error}", hint="check the path and its permissions"
            ) from error

    def checkpoints(self) -> list[tuple[int, str]]:
        """Return the step and the path of every checkpoint that was reported, in order."""
        return self._read("select step, path from checkpoints order by step")

    def events(self) -> list[LedgerEvent]:
        """Return all events, oldest first."""
        rows = self._read("select * from events order by id")
        return [
            {"id": row[0], "at": row[1], "reason": row[2], "message": row[3], "facts": json.loads(row[4])}
            for row in rows
        ]

    def progress(self) -> tuple[int, int | None]:
        """Return the last applied step, and how many steps the job has if that is known."""
        (step,) = self._read("select coalesce(max(step),0) from steps")[0]
        order = self._read("select value from meta where key='order'")
        return int(step), StepSampler(**json.loads(order[0][0])).steps if order else None


def _bounds(sampler: StepSampler, step: int) -> tuple[int, int, int]:
    span = sampler.span(step)
    return span.epoch, span.lo, span.hi


def _lock(path: Path) -> int:
    """Lock the ledger, or raise if another coordinator uses it."""
    handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise ElasticError(
            "LedgerInUse",
            f"another coordinator uses {path}",
            hint="use that coordinator, or stop it first",
        ) from error
    return handle


def _open(path: Path) -> sqlite3.Connection:
    # The coordinator writes from one thread, but for what it fixes at the start; transactions never overlap.
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        # A crash during creation leaves a file without tables, which counts as new.
        if not db.execute("select count(*) from sqlite_master").fetchone()[0]:
            db.executescript(
                f"pragma journal_mode=wal; pragma synchronous=full; pragma application_id={_APPLICATION_ID};"
                f"pragma user_version={FORMAT}; begin immediate; {_SCHEMA} commit;"
            )
            return db
        if db.execute("pragma application_id").fetchone()[0] != _APPLICATION_ID:
            raise ElasticError(
                "ForeignLedger", f"{path} is a database, but not a ledger", hint="choose another directory"
            )
        version = db.execute("pragma user_version").fetchone()[0]
        if version != FORMAT:
            raise ElasticError(
                "LedgerFormat",
                f"{path} has format {version}, but this version reads format {FORMAT}",
                hint="use the torchyard version that created it",
            )
        if db.execute("pragma quick_check").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("quick_check failed")
        db.executescript("pragma journal_mode=wal; pragma synchronous=full;")
    except sqlite3.DatabaseError as error:
        db.close()
        raise ElasticError(
            "DamagedLedger",
            f"{path} is damaged or not a ledger: {error}",
            hint="restore it from a backup, or start a new job directory from a checkpoint; nothing was changed",
        ) from error
    except BaseException:
        db.close()
        raise
    return db
