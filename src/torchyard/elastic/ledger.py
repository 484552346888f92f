"""The ledger: one durable row for every step in the lineage of the model. SQLite; no network, no torch.

The rule it keeps: after any crash the rows 1..n are exactly the steps whose records the model has consumed, each once.
Rows beyond the step that survivors agree on are taken back, missing ones below it are filled in: both follow from the
data order alone, so nothing needs to be asked of a worker that died.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import NO_FENCE, Fence

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


class LedgerRow(NamedTuple):
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
    """Opening takes the file for this process alone and begins a new incarnation."""

    def __init__(self, path: Path, *, job: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = _lock(path)
        try:
            self._db = _open(path)
            self._order: StepSampler | None = None
            self._claim(job)
        except BaseException:
            os.close(self._lock)
            raise

    def _claim(self, job: str) -> None:
        owner = self._meta("job")
        if owner is not None and owner != job:
            raise ElasticError(
                "ForeignLedger",
                f"{self.path} belongs to job {owner!r}, not to {job!r}",
                hint="give this job a directory of its own; nothing was changed",
            )
        stored = self._meta("order")
        if stored is not None:
            self._order = StepSampler(**json.loads(stored))
        self.incarnation = int(self._meta("incarnation") or 0) + 1
        with self.transaction():
            self._put("job", job)
            self._put("incarnation", str(self.incarnation))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    def _meta(self, key: str) -> str | None:
        found = self._db.execute("select value from meta where key=?", (key,)).fetchone()
        return found[0] if found else None

    def _put(self, key: str, value: str) -> None:
        self._db.execute("insert or replace into meta values(?,?)", (key, value))

    def remember(self, key: str, value: Any) -> None:
        with self.transaction():
            self._put("note:" + key, json.dumps(value))

    def recall(self, key: str, default: Any = None) -> Any:
        stored = self._meta("note:" + key)
        return default if stored is None else json.loads(stored)

    @property
    def order(self) -> StepSampler | None:
        return self._order

    def settle(self, order: StepSampler) -> None:
        """The first worker fixes the data order for the life of the ledger; a later one must bring the same."""
        if self._order is None:
            with self.transaction():
                self._put("order", json.dumps({name: getattr(order, name) for name in StepSampler.__slots__}))
            self._order = order
            return
        if order == self._order:
            return
        told = [
            f"{name} was {getattr(self._order, name)} and is now {getattr(order, name)}"
            for name in StepSampler.__slots__
            if getattr(order, name) != getattr(self._order, name)
        ]
        hint = "start a new job directory for changed settings, or put them back to resume this one"
        if self._order.records != order.records:
            hint = "bring back the dataset this job began with, or start a new job directory to train on the new one"
        raise ElasticError("OrderChanged", "the data order of this job is fixed: " + "; ".join(told), hint=hint)

    def _needs_order(self) -> StepSampler:
        if self._order is None:
            raise ElasticError("NoOrder", "no worker has told the data order of this job yet")
        return self._order

    def record(self, fence: Fence, rows: Iterable[tuple[int, float | None, str]], *, world: int, by: str) -> None:
        """Note applied steps. A row of a newer world stays; repeating one is harmless."""
        order = self._needs_order()
        with self.transaction():
            for step, loss, digest in rows:
                self._write(order, LedgerRow(step, *_bounds(order, step), fence, world, by, loss, digest))

    def _write(self, order: StepSampler, row: LedgerRow) -> None:
        self._db.execute(
            "insert into steps values(?,?,?,?,?,?,?,?,?,?) on conflict(step) do update set loss=excluded.loss, "
            "digest=excluded.digest, applied_by=excluded.applied_by, world=excluded.world, "
            "incarnation=excluded.incarnation, generation=excluded.generation "
            "where (excluded.incarnation, excluded.generation) >= (steps.incarnation, steps.generation)",
            (*row[:4], *row.fence, *row[5:]),
        )

    def reconcile(self, fence: Fence, agreed: int, *, members: tuple[str, ...], reason: str) -> tuple[int, int]:
        """A new world begins after step `agreed`: take back what is beyond it, fill in what is missing below it."""
        order = self._needs_order()
        with self.transaction():
            taken = self._db.execute("delete from steps where step>?", (agreed,)).rowcount
            held = {step for (step,) in self._db.execute("select step from steps")} if self.count() < agreed else None
            filled = 0
            if held is not None:
                for step in range(1, agreed + 1):
                    if step not in held:
                        filled += 1
                        self._write(order, LedgerRow(step, *_bounds(order, step), fence, len(members), "", None, ""))
            self._db.execute(
                "insert or replace into worlds values(?,?,?,?,?,?)",
                (*fence, time.time(), agreed, json.dumps(members), reason),
            )
        return taken, filled

    def count(self) -> int:
        return int(self._db.execute("select count(*) from steps").fetchone()[0])

    def last_step(self) -> int:
        return int(self._db.execute("select coalesce(max(step),0) from steps").fetchone()[0])

    def last_world(self) -> tuple[Fence, tuple[str, ...]]:
        found = self._db.execute(
            "select incarnation, generation, members from worlds order by incarnation desc, generation desc limit 1"
        ).fetchone()
        return (Fence(found[0], found[1]), tuple(json.loads(found[2]))) if found else (NO_FENCE, ())

    def rows(self, start: int = 1, stop: int | None = None) -> Iterator[LedgerRow]:
        cursor = self._db.execute(
            "select * from steps where step>=? and step<? order by step", (start, (1 << 62) if stop is None else stop)
        )
        for row in cursor:
            yield LedgerRow(row[0], row[1], row[2], row[3], Fence(row[4], row[5]), row[6], row[7], row[8], row[9])

    def saved(self, step: int, path: str, sha256: str) -> None:
        with self.transaction():
            self._db.execute("insert or replace into checkpoints values(?,?,?,?)", (step, path, sha256, time.time()))

    def checkpoints(self) -> list[tuple[int, str, str]]:
        return self._db.execute("select step, path, sha256 from checkpoints order by step").fetchall()

    def log(self, events: Iterable[tuple[float, str, str, dict[str, Any]]]) -> None:
        with self.transaction():
            self._db.executemany(
                "insert into events(at,reason,message,facts) values(?,?,?,?)",
                [(at, reason, message, json.dumps(facts)) for at, reason, message, facts in events],
            )

    def events(self, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        found = self._db.execute("select * from events where id>? order by id desc limit ?", (after, limit)).fetchall()
        return [
            {"id": row[0], "at": row[1], "reason": row[2], "message": row[3], "facts": json.loads(row[4])}
            for row in reversed(found)
        ]

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)


def _bounds(order: StepSampler, step: int) -> tuple[int, int, int]:
    span = order.span(step)
    return span.epoch, span.lo, span.hi


def _lock(path: Path) -> int:
    """Two coordinators on one ledger would be two truths: the second is turned away."""
    handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise ElasticError(
            "LedgerInUse",
            f"another coordinator holds {path}",
            hint="use it (`status` shows where it listens), or stop it first",
        ) from error
    return handle


def _open(path: Path) -> sqlite3.Connection:
    # The coordinator hands its ledger to one writer thread; it is never used by two at once.
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        # A crash while it was being made leaves a file without tables: that is still a fresh one.
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
            raise ElasticError("LedgerFormat", f"{path} has format {version}, this version reads {FORMAT}")
        if db.execute("pragma quick_check").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("quick_check failed")
        db.executescript("pragma journal_mode=wal; pragma synchronous=full;")
    except sqlite3.DatabaseError as error:
        db.close()
        raise ElasticError(
            "DamagedLedger",
            f"{path} is damaged or not a ledger: {error}",
            hint="restore it from a copy, or start a new job directory from the newest checkpoint; nothing was changed",
        ) from error
    except BaseException:
        db.close()
        raise
    return db
