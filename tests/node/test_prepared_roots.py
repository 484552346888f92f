"""Roots of mapped images that are prepared before a container needs one."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from tests.node import support

from torchyard.node.runtime.prepared_roots import PreparedRoots, RootContent, is_copied
from torchyard.node.runtime.rootfs_steps import NETWORK_FILES, RootfsSource, root_content, rootfs_steps


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "machine-file"
    path.write_text("first")
    return path


def content_of(source: Path) -> RootContent:
    return RootContent({"etc/file": str(source)}, {"bin": "usr/bin"}, {"tmp": 0o1777, "a/b": 0o755}, ("empty",))


def test_a_container_gets_a_root_from_the_stock(tmp_path: Path, source: Path) -> None:
    roots, content = PreparedRoots(tmp_path), content_of(source)
    roots.take(content, tmp_path / "pod" / "0.root")
    roots.refill()
    stocked = {path.stat().st_ino for path in (tmp_path / "roots").iterdir()}
    roots.take(content, tmp_path / "pod" / "1.root")
    for root in (tmp_path / "pod" / "0.root", tmp_path / "pod" / "1.root"):
        assert (root / "etc" / "file").read_text() == "first"
        assert (root / "bin").readlink() == Path("usr/bin")
        assert stat.S_IMODE((root / "tmp").stat().st_mode) == 0o1777
        assert (root / "a" / "b").is_dir()
        assert (root / "empty").read_bytes() == b""
    assert (tmp_path / "pod" / "1.root").stat().st_ino in stocked


def test_a_changed_file_of_the_machine_is_not_taken_from_the_stock(tmp_path: Path, source: Path) -> None:
    roots, content = PreparedRoots(tmp_path), content_of(source)
    roots.take(content, tmp_path / "0.root")
    roots.refill()
    source.write_text("another")
    roots.take(content, tmp_path / "1.root")
    assert (tmp_path / "1.root" / "etc" / "file").read_text() == "another"


def test_a_root_that_exists_is_completed(tmp_path: Path, source: Path) -> None:
    """An agent that was killed may have created it."""
    roots, content = PreparedRoots(tmp_path), content_of(source)
    roots.take(content, tmp_path / "0.root")
    roots.refill()
    (tmp_path / "1.root").mkdir()
    roots.take(content, tmp_path / "1.root")
    assert (tmp_path / "1.root" / "etc" / "file").read_text() == "first"


def test_the_stock_of_an_earlier_agent_is_removed(tmp_path: Path, source: Path) -> None:
    roots = PreparedRoots(tmp_path)
    roots.take(content_of(source), tmp_path / "0.root")
    roots.refill()
    PreparedRoots(tmp_path)
    assert not (tmp_path / "roots").exists()


def test_a_file_that_is_gone_is_left_out(tmp_path: Path, source: Path) -> None:
    content = content_of(source)
    source.unlink()
    PreparedRoots(tmp_path).take(content, tmp_path / "0.root")
    assert not (tmp_path / "0.root" / "etc" / "file").exists()


def test_large_files_and_directories_are_mounted(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x" * 8192)
    (tmp_path / "large").write_bytes(b"x" * 8193)
    assert [is_copied(str(tmp_path / name)) for name in ("small", "large", ".", "missing")] == [
        True,
        False,
        False,
        False,
    ]


def test_images_with_layers_and_containers_that_may_remount_have_no_prepared_root(tmp_path: Path) -> None:
    assert root_content(RootfsSource(machine=True, layers=(tmp_path,)), may_remount=False) is None
    assert root_content(RootfsSource(machine=False), may_remount=False) is None
    assert root_content(RootfsSource(machine=True), may_remount=True) is None


async def test_a_prepared_root_has_what_a_root_from_nothing_has(tmp_path: Path) -> None:
    support.need_sandbox()
    source = RootfsSource(machine=True, prefixes=(Path(sys.prefix), Path(sys.base_prefix)))
    program = (
        "import os; [print(os.path.join(top, name), oct(os.lstat(os.path.join(top, name)).st_mode)) "
        "for top in ('/', '/etc', '/dev', '/var') for name in sorted(os.listdir(top))]"
    )
    listings = []
    (tmp_path / "node").mkdir()
    async with support.shim_harness(tmp_path / "node") as harness:
        for prepared in (False, True):
            pod = await harness.pod(f"p{int(prepared)}")
            root = pod.pod / "containers" / "c" / "0.root"
            if prepared:
                content = root_content(source, may_remount=False)
                assert content
                PreparedRoots(tmp_path).take(content, root)
            steps = rootfs_steps(source, [], scratch=root.with_suffix(".rw"), devices=[], prepared=prepared)
            await harness.run(pod, "c", [sys.executable, "-c", program], steps=steps)
            listings.append(set(harness.output(pod, "c")))
    own = {f"/etc/{name}" for name in NETWORK_FILES}  # each pod has its own mounted there
    own.add("/dev/.machine")  # until the machine's root is detached
    entries = [{line for line in listing if line.split()[0] not in own} for listing in listings]
    assert entries[0] == entries[1]
