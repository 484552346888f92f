"""Copies of the store: taken while the plane runs, restored while it does not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.apiserver.store.log import copy_store, verify
from torchyard.yard.lock import StateLock
from torchyard.yard.settings import PlaneSettings, ensure_state_directory


def backup(state: Path, target: Path) -> int:
    """Copy the store of a running or stopped plane; returns the saved revision."""
    source = PlaneSettings(state=state).database
    if not source.exists():
        raise YardError(
            f"{state} contains no store", hint="name the plane's state directory with --state", code="NotFound"
        )
    copy_store(source, target)
    return verify(target)


def restore(state: Path, source: Path, *, replace: bool = False) -> int:
    """Replace a stopped plane's store by a backup and keep the old one next to it; returns the restored revision."""
    try:
        verify(source)
    except YardError as error:
        raise YardError(error.message, hint="name a file that `yard backup` wrote", code=error.code) from error
    settings = PlaneSettings(state=state)
    ensure_state_directory(state)
    lock = StateLock(settings.lock)
    lock.acquire()
    try:
        return _replace(settings.database, source, allowed=replace)
    finally:
        lock.release()


def _replace(database: Path, source: Path, *, allowed: bool) -> int:
    """The current store is replaced only when the copy is complete, so that a full disk changes nothing."""
    if database.exists() and not allowed:
        raise YardError(
            f"{database} exists",
            hint="add --replace; the old store is kept as store.db.before-restore-…",
            code="AlreadyExists",
        )
    copy = database.with_name(f"{database.name}.restoring")
    copy.unlink(missing_ok=True)  # left by a restore that was killed
    copy_store(source, copy)
    try:
        revision = verify(copy, objects=True)  # the copy, which nobody else can change
    except YardError as error:
        copy.unlink()
        message = error.message.replace(str(copy), str(source))
        raise YardError(message, hint="name a file that `yard backup` wrote", code=error.code) from error
    _put_aside(database)
    copy.replace(database)
    return revision


def _put_aside(database: Path) -> None:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    for suffix in ("", "-wal", "-shm"):
        part = database.with_name(database.name + suffix)
        if part.exists():
            part.replace(database.with_name(f"{database.name}.before-restore-{stamp}{suffix}"))
