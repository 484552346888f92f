"""The file on disk: files that are rejected, damage, backups."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.apiserver.store.log import Log, Row, StoreFileError, copy_store, verify


def filled(path: Path, rows: int = 50) -> Log:
    log = Log(path)
    log.append(Row(n, f"/pods/a/{n:03}", 0, False, b'{"metadata":{}}' * 40) for n in range(1, rows + 1))
    return log


def foreign_text(path: Path) -> None:
    path.write_text("this is not a database\n" * 10)


def foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE notes (text)")
    db.close()


def newer_format(path: Path) -> None:
    filled(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()


def cut_header(path: Path) -> None:
    filled(path).close()
    path.write_bytes(path.read_bytes()[:60])


def overwritten_pages(path: Path) -> None:
    filled(path, rows=500).close()
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 6] = os.urandom(4096 * 3)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (foreign_text, "is not a Torchyard store"),
        (foreign_database, "of another program"),
        (newer_format, "written by a newer Torchyard"),
        (cut_header, "its header is cut short"),
        (overwritten_pages, "is damaged"),
    ],
)
def test_a_file_that_is_not_an_intact_store_is_rejected_and_left_unchanged(
    tmp_path: Path, make: object, message: str
) -> None:
    path = tmp_path / "store.db"
    assert callable(make)
    make(path)
    before = path.read_bytes()
    with pytest.raises(StoreFileError, match=message) as caught:
        Log(path)
    assert caught.value.hint
    assert path.read_bytes() == before


def test_a_flipped_bit_inside_an_object_is_detected_on_read(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path).close()
    data = path.read_bytes()
    position = data.index(b'{"metadata"')
    path.write_bytes(data[:position] + b'["metadata"' + data[position + 11 :])
    log = Log(path)
    with pytest.raises(StoreFileError, match=r"the object /pods/a/\d+ at revision \d+ is damaged"):
        list(log.current())
    log.close()
    with pytest.raises(StoreFileError, match="is damaged"):
        verify(path)


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    log = filled(tmp_path / "store.db")
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    log.close()
    assert modes == {0o600}


def test_a_backup_is_a_whole_store_and_never_overwrites(tmp_path: Path) -> None:
    log = filled(tmp_path / "store.db")
    copy_store(tmp_path / "store.db", tmp_path / "copy.db")
    log.append([Row(51, "/pods/a/late", 0, False, b"{}")])
    assert verify(tmp_path / "copy.db") == 50
    with pytest.raises(StoreFileError, match="exists"):
        copy_store(tmp_path / "store.db", tmp_path / "copy.db")
    log.close()
    copy = Log(tmp_path / "copy.db")
    assert copy.last_revision() == 50
    assert sum(1 for _ in copy.current()) == 50
    copy.close()


def test_rows_survive_a_process_that_is_killed_right_after_the_append(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from torchyard.apiserver.store.log import Log, Row;"
        "log = Log(Path(sys.argv[1]));"
        "log.append(Row(n, f'/pods/a/{n}', 0, False, b'{}') for n in range(1, 11));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "store.db"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False, env=env)
    assert killed.returncode == -9
    log = Log(path)
    assert [rev for rev, _, _ in log.current()] == list(range(1, 11))
    log.close()
