"""The archive for bug reports has no secrets."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from torchyard.yard.bug_report import redact, write_bundle
from torchyard.yard.settings import PlaneSettings


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer abc.def-123",
        "token=s3cr3t-value next",
        '"password": "s3cr3t-value"',
        "AWS_SECRET_ACCESS_KEY=s3cr3t-value",
        "https://user:s3cr3t-value@example.com/x",
        "https://s3cr3t-value@example.com/x",
        "https://user:a@s3cr3t-value@example.com/x",
        "run --token s3cr3t-value --name x",
        "['run', '--api-key', 's3cr3t-value']",
        'password="a s3cr3t-value"',
        '{\\"password\\": \\"a s3cr3t-value\\"}',
        "eyJhbGciOi.eyJzdWIi.s3cr3t-value",
        "-----BEGIN RSA PRIVATE KEY-----\ns3cr3t-value\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secrets_are_redacted(secret: str) -> None:
    assert "s3cr3t-value" not in redact(secret)
    assert "abc.def-123" not in redact(secret)


def test_plain_lines_stay() -> None:
    line = "2026-01-01 12:00:00 INFO part failed: part=node error=timeout url=https://example.com/a@b"
    assert redact(line) == line


def test_the_archive_has_log_and_versions_and_nothing_of_the_store(tmp_path: Path) -> None:
    settings = PlaneSettings(state=tmp_path / "state")
    settings.state.mkdir()
    settings.log.write_text("started\nheader: Bearer abcdef\n")
    (settings.state / "admin.token").write_text("topsecret")
    target = tmp_path / "report.tar.gz"
    names = write_bundle(settings, target)
    with tarfile.open(target) as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
        texts = {name: file.read().decode() for name, file in members.items() if file is not None}
    assert sorted(texts) == sorted(f"torchyard-report/{name}" for name in names)
    log = texts["torchyard-report/yard.log"]
    assert "started" in log
    assert "abcdef" not in log
    assert "topsecret" not in "".join(texts.values())
    assert '"torchyard"' in texts["torchyard-report/versions.json"]
