"""`yard cp` unpacks what was asked for, and nothing else that a pod sends."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from torchyard.api.errors import YardError
from torchyard.cli.copy import _unpack


def file(name: str, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    return member, data


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for member, data in members:
            archive.addfile(member, io.BytesIO(data))
    return target


@pytest.mark.parametrize(
    "members",
    [
        [file("model.pt"), file(".ssh/keys", b"bad")],
        [file("model.pt/../.ssh/keys", b"bad")],
        [link("model.pt", "."), file("model.pt/.ssh/keys", b"bad")],
        [link("model.pt/l", "../.ssh/keys"), file("model.pt/l", b"bad")],
        [link("model.pt/l", ".ssh/keys", tarfile.LNKTYPE), file("model.pt/l", b"bad")],
        [link("model.pt/d", "../.ssh"), link("model.pt/l", "model.pt/d/keys", tarfile.LNKTYPE)],
        [link("model.pt/l", "model.pt/none", tarfile.LNKTYPE)],
    ],
)
@pytest.mark.parametrize("name", ["", "other"])
def test_what_was_not_asked_for_is_refused(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]], name: str
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "keys").write_text("good")
    with pytest.raises(YardError, match="is refused"):
        _unpack(packed(*members), "/tmp/model.pt", tmp_path, name)
    assert (tmp_path / ".ssh" / "keys").read_text() == "good"
    assert (tmp_path / ".ssh" / "keys").stat().st_nlink == 1


@pytest.mark.parametrize("name", ["", "other"])
def test_a_directory_with_links_is_copied_and_renamed(tmp_path: Path, name: str) -> None:
    members = [file("data/a"), link("data/b", "data/a", tarfile.LNKTYPE), link("data/c", "a")]
    _unpack(packed(*members), "data/", tmp_path, name)
    assert [(tmp_path / (name or "data") / leaf).read_text() for leaf in "abc"] == ["x", "x", "x"]


def test_the_content_of_a_working_directory_is_copied(tmp_path: Path) -> None:
    _unpack(packed(file("./a")), ".", tmp_path, "")
    assert (tmp_path / "a").read_text() == "x"
