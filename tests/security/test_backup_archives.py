"""Backups from elsewhere: whatever is not a store of ours is refused with its path, and nothing is changed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from torchyard.api.errors import YardError
from torchyard.apiserver.store.log import Log, Row
from torchyard.yard.backups import backup, restore

OBJECT = b'{"metadata":{"name":"a"}}'


def store(path: Path, value: bytes = OBJECT, rev: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    log = Log(path)
    log.append([Row(rev, "/pods/default/a", 0, False, value)])
    log.close()
    return path


def with_sql(path: Path, *statements: str) -> None:
    store(path)
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def cut_short(path: Path) -> None:
    data = store(path).read_bytes()
    path.write_bytes(data[: len(data) // 2])


def with_a_wrong_type(path: Path) -> None:
    with_sql(path, "PRAGMA writable_schema = ON")
    db = sqlite3.connect(path)
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, 'STRICT', '') WHERE name = 'log'")
    db.commit()
    db.close()


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "directory": (lambda path: path.mkdir(), "is not a regular file"),
    "pipe": (os.mkfifo, "is not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "does not exist"),
    "empty": (lambda path: path.touch(), "is empty"),
    "text": (lambda path: path.write_text("x" * 200), "is not a Torchyard store"),
    "cut short": (cut_short, "is damaged"),
    "trigger": (
        lambda path: with_sql(path, "CREATE TRIGGER t AFTER INSERT ON log BEGIN DELETE FROM log; END"),
        "its tables differ",
    ),
    "view": (
        lambda path: with_sql(path, "DROP TABLE meta", "CREATE VIEW meta AS SELECT 'compacted' AS name, 0 AS value"),
        "its tables differ",
    ),
    "another table": (lambda path: with_sql(path, "CREATE TABLE more (x)"), "its tables differ"),
    "not strict": (with_a_wrong_type, "its tables differ|is damaged"),
    "revision": (lambda path: store(path, rev=(1 << 63) - 1), "is damaged"),
    "negative revision": (lambda path: store(path, rev=-5), "is damaged"),
    "not JSON": (lambda path: store(path, b"\xff\xfe"), "is not an object of the API"),
    "not an object": (lambda path: store(path, b"[1]"), "is not an object of the API"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_is_not_a_backup_is_refused_with_its_path(tmp_path: Path, kind: str) -> None:
    state, source = tmp_path / "state", tmp_path / "backup.db"
    before = store(state / "store.db").read_bytes()
    make, words = HOSTILE[kind]
    make(source)
    with pytest.raises(YardError, match=words) as refused:
        restore(state, source, replace=True)
    assert str(source) in refused.value.message
    assert refused.value.hint
    assert (state / "store.db").read_bytes() == before
    assert sorted(path.name for path in state.iterdir() if not path.name.startswith("lock")) == ["store.db"]


def test_a_restored_store_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    state, copy, fresh = tmp_path / "state", tmp_path / "copy.db", tmp_path / "fresh"
    store(state / "store.db")
    umask = os.umask(0)
    try:
        assert backup(state, copy) == 1
        copy.chmod(0o666)
        assert restore(fresh, copy) == 1
    finally:
        os.umask(umask)
    assert (fresh / "store.db").stat().st_mode & 0o777 == 0o600
    assert fresh.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "fresh", "state"]


@pytest.mark.parametrize("name", ["a?mode=rwc", "a#b", "a%41", "sp ace", "ümlaut"])
def test_a_path_with_the_characters_of_a_uri_is_that_path(tmp_path: Path, name: str) -> None:
    state, copy = tmp_path / name / "state", tmp_path / name / f"{name}.db"
    store(state / "store.db")
    assert backup(state, copy) == 1
    assert restore(state, copy, replace=True) == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_backup_never_replaces_a_file_or_follows_a_link(tmp_path: Path) -> None:
    state, victim = tmp_path / "state", tmp_path / "victim"
    store(state / "store.db")
    (tmp_path / "link.db").symlink_to(victim)
    with pytest.raises(YardError, match=r"cannot write .*link\.db"):
        backup(state, tmp_path / "link.db")
    assert not victim.exists()
    victim.write_text("precious")
    with pytest.raises(YardError, match=r"link\.db exists"):
        backup(state, tmp_path / "link.db")
    assert victim.read_text() == "precious"
