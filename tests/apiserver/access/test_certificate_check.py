"""Certificates are read only when something changed since they were checked, and then they are made current."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from torchyard.apiserver.access import certificate_check, certificates
from torchyard.apiserver.access.certificate_check import ensure


@pytest.fixture
def full_checks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories that were checked in full."""
    calls: list[Path] = []
    original = certificates.ensure

    def counted(directory: Path, **options: object) -> object:
        calls.append(directory)
        return original(directory, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(certificates, "ensure", counted)
    return calls


def test_unchanged_certificates_are_checked_once(tmp_path: Path, full_checks: list[Path]) -> None:
    first = ensure(tmp_path, names=["a.example"]).load("server")
    assert ensure(tmp_path, names=["a.example"]).load("server") == first
    assert len(full_checks) == 1


def test_another_name_is_added(tmp_path: Path, full_checks: list[Path]) -> None:
    first = ensure(tmp_path).load("server")
    assert ensure(tmp_path, names=["b.example"]).load("server").certificate != first.certificate
    assert len(full_checks) == 2


@pytest.mark.parametrize("name", ["ca.crt", "server.crt", "server.key", "admin.crt", "service-accounts.key"])
@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_changed_file_is_noticed(name: str, change: str, tmp_path: Path, full_checks: list[Path]) -> None:
    own, other = ensure(tmp_path / "own"), ensure(tmp_path / "other")
    file = own.directory / name
    if change == "removed":
        file.unlink()
    else:
        file.write_bytes((other.directory / name).read_bytes())
    ensure(own.directory)
    assert full_checks.count(own.directory) == 2
    full_checks.clear()
    ensure(own.directory)
    assert full_checks == []


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"digests": 1, "names": 2, "valid_from": "", "x": 1}'])
def test_a_damaged_record_is_replaced(content: str, tmp_path: Path, full_checks: list[Path]) -> None:
    ensure(tmp_path)
    certificate_check._record_file(tmp_path).write_text(content)
    ensure(tmp_path)
    ensure(tmp_path)
    assert len(full_checks) == 2


@pytest.mark.parametrize("shift", [timedelta(days=300), timedelta(days=-1)])
def test_certificates_are_checked_when_they_are_due(
    shift: timedelta, tmp_path: Path, full_checks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure(tmp_path)

    shifted = datetime.now(UTC) + shift
    monkeypatch.setattr(certificate_check, "_now", shifted.timestamp)
    ensure(tmp_path)
    assert len(full_checks) == 2
