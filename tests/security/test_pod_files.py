"""Files that containers have written: removed and read without blocking, following links, or using much memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.node import support
from tests.node.conftest import running_node

from torchyard import files
from torchyard.node.pod import etc_files, shared_memory
from torchyard.node.pod.environment import CreateContainerConfigError
from torchyard.node.pod.pod_dir import PodDir
from torchyard.node.shim import records

REMOVE = """
import os, sys
from pathlib import Path
from torchyard import files
if os.getuid() == 0:
    os.setuid(65534)
work = Path(sys.argv[1])
(work / "tree" / "closed" / "deep").mkdir(parents=True)
(work / "tree" / "closed" / "link").symlink_to(work / "victim")
(work / "tree" / "closed" / "deep" / "file").touch()
(work / "victim").touch()
(work / "victim").chmod(0o600)
(work / "tree" / "closed" / "deep").chmod(0)
(work / "tree" / "closed").chmod(0o500)
files.remove_tree(work / "tree")
print(oct((work / "victim").stat().st_mode & 0o7777), os.listdir(work))
"""


def test_directories_without_permissions_are_removed_and_links_not_followed() -> None:
    with tempfile.TemporaryDirectory() as work:
        Path(work).chmod(0o777)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", REMOVE, work], capture_output=True, text=True, check=False, env=env
        )
    assert done.stdout == "0o600 ['victim']\n", done.stderr


def test_a_tree_of_any_depth_and_width_is_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    current = os.open(tree, os.O_RDONLY)
    for _ in range(3000):  # deeper than a path, than Python's stack and than the number of open files
        os.mkdir("d" * 20, dir_fd=current)
        os.symlink(tmp_path / "outside", "link", dir_fd=current)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
    for number in range(2500):
        (tree / f"file{number}").touch()
    files.remove_tree(tree)
    assert sorted(os.listdir(tmp_path)) == ["outside"]
    assert os.listdir(tmp_path / "outside") == ["file"]
    files.remove_tree(tree)  # already gone


def test_the_end_of_a_file_is_read_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"start" + b"x" * 10_000 + b"end")
    assert files.read_end(tmp_path / "file", 5) == b"xxend"
    assert files.read_end(tmp_path / "file", 100_000) == (tmp_path / "file").read_bytes()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("pipe", "link", "missing", "."):
        assert files.read_end(tmp_path / name, 5) == b""
    assert files.read_end(Path("/dev/zero"), 5) == b""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert files.read_end(tmp_path / "huge", 4096) == bytes(4096)


def test_files_in_etc_are_rewritten_whatever_a_container_wrote(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    etc_files._write_in_place(path, b"content")
    inode = path.stat().st_ino
    path.write_bytes(b"\xff\xfe")
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    etc_files._write_in_place(path, b"new")
    assert (path.read_bytes(), path.stat().st_ino, path.stat().st_mode & 0o777) == (b"new", inode, 0o644)


def test_a_termination_message_is_the_end_of_a_regular_file(tmp_path: Path) -> None:
    pod_dir = PodDir(tmp_path)
    pod_dir.container("main").mkdir(parents=True)
    times = {"createdAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:00Z"}
    record = {"container": "main", "attempt": 0, "id": "x", "state": "exited", "exitCode": 1, **times}
    records.write(records.record_path(str(tmp_path), "main", 0), record)
    file = pod_dir.message_file("main", 0)

    def message() -> str:
        return pod_dir.attempts({"name": "main"})[0].message

    file.write_bytes(b"a" * 5000 + b"b" * 4096)
    assert message() == "b" * 4096
    file.unlink()
    os.mkfifo(file)
    assert message() == ""
    file.unlink()
    file.symlink_to("/etc/passwd")
    assert message() == ""


@pytest.mark.parametrize("path", ["/dev/termination-log", "/shared/message"])
async def test_a_container_cannot_make_its_termination_message_something_else(tmp_path: Path, path: str) -> None:
    support.need_sandbox()
    (tmp_path / "volume").mkdir()
    volumes = [{"name": "v", "hostPath": {"path": str(tmp_path / "volume")}}]
    async with running_node(tmp_path / "state") as node:
        script = f"""
        rm -f {path}; ln -sf /etc/hostname {path}; mkfifo {path}; mv {path} {path}.old; printf '\\377\\376' > /etc/hosts
        truncate -s 1T {path}; printf the-end >> {path}; mkdir -p /a/b; ln -s / /a/b/root; exit 3
        """
        mounts = [{"name": "v", "mountPath": "/shared"}]
        await node.script(
            "p", script, container={"terminationMessagePath": path, "volumeMounts": mounts}, volumes=volumes
        )
        pod = await node.phase("p", "Failed")
        message = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
        assert message.endswith("the-end")
        assert len(message) == 4096
        await node.script("next", "true")  # changes the names that the hosts file of the first one has
        await node.phase("next", "Succeeded")


def test_the_directory_of_shared_memory_must_be_the_nodes_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may create files in /dev/shm, also with the name that a node would use."""
    base, victim = tmp_path / "shm", tmp_path / "victim"
    for directory in (base, victim):
        directory.mkdir(mode=0o700)
    monkeypatch.setattr(shared_memory, "BASE", base)
    path = shared_memory.directory_of(tmp_path / "node", "default/uid")
    assert path is not None
    assert (path.stat().st_mode & 0o7777, path.parent.stat().st_mode & 0o7777) == (0o1777, 0o700)
    assert path != shared_memory.directory_of(tmp_path / "node", "other/uid")
    (path / "deep").mkdir()
    (path / "deep" / "link").symlink_to(victim)
    for group in ("default/uid", "other/uid", "../../../victim"):
        shared_memory.remove(tmp_path / "node", group)
    assert list(base.iterdir()) == []
    path.parent.symlink_to(victim)
    with pytest.raises(CreateContainerConfigError, match="is not a directory of this node alone"):
        shared_memory.directory_of(tmp_path / "node", "default/uid")
    shared_memory.remove(tmp_path / "node", "default/uid")
    path.parent.unlink()
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(CreateContainerConfigError, match="is not a directory of this node alone"):
        shared_memory.directory_of(tmp_path / "node", "default/uid")
    assert (victim.stat().st_mode & 0o7777, list(victim.iterdir())) == (0o700, [])
