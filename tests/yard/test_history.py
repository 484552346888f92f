"""The history of a plane: what is recorded when jobs end, and how long."""

from __future__ import annotations

import os
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.core.run.record import RunRecord, build_record, replica_record
from torchyard.jobs import past_jobs
from torchyard.jobs.target import Target
from torchyard.yard.history import HistoryStore, log_files

OWNER = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def job(uid: str, *, state: str = "", name: str = "j") -> Object:
    conditions = [{"type": state, "status": "True", "message": "why", "lastTransitionTime": "2026-01-02T11:00:00Z"}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"uid": uid, "name": name, "namespace": "default", "creationTimestamp": "2026-01-02T10:00:00Z"},
        "spec": {},
        "status": {"conditions": conditions if state else []},
    }


def pod(code: int | None) -> Object:
    state = (
        {"running": {}} if code is None else {"terminated": {"exitCode": code, "finishedAt": "2026-01-02T11:00:00Z"}}
    )
    limits = {"limits": {"nvidia.com/gpu": "2"}}
    return {
        "metadata": {"name": "j-abc", "uid": "p"},
        "spec": {"containers": [{"name": "main", "resources": limits}]},
        "status": {
            "phase": "Running" if code is None else "Failed" if code else "Succeeded",
            "startTime": "2026-01-02T10:00:00Z",
            "containerStatuses": [{"name": "main", "state": state}],
        },
    }


def test_a_record_has_the_end_of_the_job_and_of_its_replicas() -> None:
    record = build_record(job("a", state="Failed"), [pod(3)], NOW)
    assert (record["state"], record["exitCode"], record["ended"]) == ("Failed", 3, "2026-01-02T11:00:00Z")
    assert record["gpuSeconds"] == 2 * 3600
    assert record["replicas"][0]["exitCode"] == 3
    assert "status" not in record["object"]
    deleted = build_record(job("a"), [pod(None)], NOW, deleted=True)
    assert (deleted["state"], deleted["exitCode"], deleted["ended"]) == ("Deleted", None, "2026-01-02T12:00:00Z")
    assert build_record(job("a", state="Complete"), [], NOW)["exitCode"] == 0


def test_a_record_names_no_controller_whose_uid_leads_elsewhere() -> None:
    owned = pod(0)
    for uid, kept in (("../../other", ""), ("/etc", ""), (OWNER, OWNER)):
        owned["metadata"]["ownerReferences"] = [{"uid": "x"}, {"uid": uid, "controller": True}]
        assert replica_record(owned, "j", NOW)["controller"] == kept


def test_logs_of_a_job_are_looked_for_in_the_history_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = HistoryStore(tmp_path / "history")
    for directory in (store.logs / OWNER, tmp_path / "elsewhere"):
        (directory / "pod" / "main").mkdir(parents=True)
        (directory / "pod" / "main" / "0.log").touch()
    monkeypatch.setattr(past_jobs, "plane_history", lambda _: store)
    record = build_record(job(OWNER, state="Complete"), [pod(0), pod(0)], NOW)
    record["replicas"] = [{**record["replicas"][0], "controller": str(tmp_path / "elsewhere")}]
    kept = past_jobs.kept_logs(cast(Target, None), record)
    assert kept == [("pod", "main", store.logs / OWNER / "pod" / "main" / "0.log")]


def test_what_ended_stays_ended_when_the_job_is_deleted(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history")
    store.write([build_record(job("a", state="Failed"), [pod(3)], NOW)], [])
    later = NOW + timedelta(hours=5)
    store.write([build_record(job("a", state="Failed"), [], later, deleted=True)], [])
    (record,) = HistoryStore(tmp_path / "history").list()
    assert (record["state"], record["ended"]) == ("Failed", "2026-01-02T11:00:00Z")
    assert [replica["exitCode"] for replica in record["replicas"]] == [3]
    assert (record["exitCode"], record["gpuSeconds"]) == (3, 2 * 3600)


def test_a_replica_that_ends_after_its_job_is_recorded(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history")
    store.write([build_record(job("a"), [pod(None)], NOW, deleted=True)], [])
    store.write([], [("a", replica_record(pod(143), "j", NOW)), ("unknown", replica_record(pod(1), "j", NOW))])
    store.write([], [("a", replica_record(pod(None), "j", NOW))])
    (record,) = store.list("default", name="j")
    assert record["replicas"][0]["exitCode"] == 143
    assert store.uids() == {"a"}


def test_replicas_keep_their_order(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history")
    first, second = (replica_record(pod(None), "j", NOW) | {"pod": name} for name in ("j-0", "j-1"))
    store.write([build_record(job("a"), [], NOW, deleted=True) | {"replicas": [first, second]}], [])
    store.write([], [("a", first | {"exitCode": 1})])
    (record,) = store.list()
    assert [(replica["pod"], replica["exitCode"]) for replica in record["replicas"]] == [("j-0", 1), ("j-1", None)]


def test_old_records_and_logs_are_removed(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history")
    store.write([build_record(job("a", state="Complete"), [], NOW)], [])
    old, new = store.logs / "a", store.logs / "b"
    for directory in (old, new):
        (directory / "j-abc" / "main").mkdir(parents=True)
        (directory / "j-abc" / "main" / "0.log").write_text("x")
    os.utime(old, (0, 0))
    store.prune(NOW + timedelta(days=1))
    assert store.list() == []
    assert not old.exists()
    assert log_files(new) == [("j-abc", "main", new / "j-abc" / "main" / "0.log")]


def test_a_directory_without_history_has_no_records(tmp_path: Path) -> None:
    assert HistoryStore(tmp_path / "none").list() == []
    assert not (tmp_path / "none").exists()


def test_a_cleared_history_has_neither_records_nor_logs(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history")
    store.clear()
    store.write([], [])
    (store.logs / "uid" / "pod" / "main").mkdir(parents=True)
    store.clear()
    assert store.list() == [] and not store.logs.exists()


def test_a_damaged_history_is_set_aside(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    file = tmp_path / "runs.db"
    for read in (store.uids, lambda: store.prune(NOW)):
        file.write_bytes(b"damaged" * 1000)
        with pytest.raises(YardError, match=r"the history in .*runs\.db cannot be read: file is not a database"):
            store.list()
        read()
        assert store.list() == []
        assert (tmp_path / "runs.db.damaged").read_bytes() == b"damaged" * 1000


def test_writes_share_one_connection_until_the_file_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(arguments)
        return cast(sqlite3.Connection, real(*arguments, **options))

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)
    store = HistoryStore(tmp_path / "history")
    for name in ("a", "b", "c"):
        store.write([build_record(job(name, state="Complete"), [], NOW)], [])
    assert len(opened) == 1
    assert HistoryStore(tmp_path / "history").uids() == {"a", "b", "c"}
    shutil.rmtree(tmp_path / "history")
    store.write([build_record(job("d", state="Complete"), [], NOW)], [])
    assert HistoryStore(tmp_path / "history").uids() == {"d"}
    store.close()
    store.write([build_record(job("e", state="Complete"), [], NOW)], [])
    assert HistoryStore(tmp_path / "history").uids() == {"d", "e"}


def test_a_write_that_failed_succeeds_when_it_is_repeated(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    record = build_record(job("a", state="Complete"), [], NOW)
    store.write([record], [])
    with pytest.raises(TypeError):
        store.write([record, cast(RunRecord, {**record, "uid": "b", "message": object()})], [])
    assert store.uids() == {"a"}
    store.write([cast(RunRecord, {**record, "uid": "b"})], [])
    assert store.uids() == {"a", "b"}
