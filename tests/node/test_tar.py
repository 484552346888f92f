"""The stand-in for `tar` that `kubectl cp` finds in containers without one."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.node import support

# The machine's own tar, as an ordinary user's pod runs it: root of a user namespace without other users.
ALONE = """
import os, sys
from torchyard.node.shim import process, linux
linux.map_identity(0, 0)
process._exec(["tar", *sys.argv[1:]], dict(os.environ))
"""
PROGRAM = "import sys; from torchyard.node.shim import tar; sys.exit(tar.main(['tar', *sys.argv[1:]]))"


def tar(*arguments: str, stdin: bytes = b"", program: str = PROGRAM) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", program, *arguments], input=stdin, capture_output=True, check=False)


def packed(name: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = 1
        member.uid = member.gid = 1234
        archive.addfile(member, io.BytesIO(b"x"))
    return out.getvalue()


@pytest.mark.parametrize("name", ["../escaped", "a/../../escaped"])
def test_a_path_that_leads_out_of_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    done = tar("xmf", "-", "-C", str(inner), stdin=packed(name))
    assert done.returncode == 2
    assert b"must not lead out of the directory" in done.stderr
    assert not (tmp_path / "escaped").exists()


def test_a_tree_can_be_packed_and_unpacked(tmp_path: Path) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").write_text("content")
    packed = tar("cf", "-", "-C", str(tmp_path), "tree")
    back = tmp_path / "back"
    back.mkdir()
    assert tar("xmf", "-", "-C", str(back), stdin=packed.stdout).returncode == 0
    assert (back / "tree" / "deep" / "file").read_text() == "content"


@pytest.mark.parametrize("program", [PROGRAM, ALONE], ids=["ours", "the machine's, without other users"])
def test_files_of_unknown_users_are_unpacked(tmp_path: Path, program: str) -> None:
    if program == ALONE:
        support.need_sandbox()
    done = tar("-xmf", "-", "-C", str(tmp_path), stdin=packed("theirs"), program=program)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "theirs").read_text() == "x"


@pytest.mark.parametrize("arguments", [("cf", "file", "x"), ("xf", "-", "--strange"), ("tf", "-")])
def test_unsupported_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    assert tar(*arguments).returncode == 2
