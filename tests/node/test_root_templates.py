"""Templates of the roots of mapped images."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from tests.node import support

from torchyard.node.runtime.root_templates import RootContent, RootTemplates, is_copied
from torchyard.node.runtime.rootfs_steps import NETWORK_FILES, RootfsSource, rootfs_steps

LIST = """
import os
for top in ("/", "/etc", "/dev", "/var"):
    for name in sorted(os.listdir(top)):
        print(os.path.join(top, name), oct(os.lstat(os.path.join(top, name)).st_mode))
"""
SOURCE = RootfsSource(machine=True, prefixes=(Path(sys.prefix), Path(sys.base_prefix)))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "machine-file"
    path.write_text("first")
    return path


def content_of(source: Path) -> RootContent:
    return RootContent({"etc/file": str(source)}, {"bin": "usr/bin"}, {"tmp": 0o1777, "a/b": 0o755}, ("empty",))


def test_a_template_has_copies_links_directories_and_mount_points(tmp_path: Path, source: Path) -> None:
    templates, content = RootTemplates(tmp_path), content_of(source)
    template = templates.path(content)
    assert (template / "etc" / "file").read_text() == "first"
    assert (template / "bin").readlink() == Path("usr/bin")
    assert stat.S_IMODE((template / "tmp").stat().st_mode) == 0o1777
    assert (template / "a" / "b").is_dir()
    assert (template / "empty").read_bytes() == b""
    assert templates.path(content) == RootTemplates(tmp_path).path(content) == template


def test_a_changed_file_of_the_machine_leads_to_another_template(tmp_path: Path, source: Path) -> None:
    templates, content = RootTemplates(tmp_path), content_of(source)
    before = templates.path(content)
    source.write_text("another")
    after = templates.path(content)
    assert (before / "etc" / "file").read_text() == "first"
    assert (after / "etc" / "file").read_text() == "another"


def test_a_template_that_was_removed_is_created_again(tmp_path: Path, source: Path) -> None:
    templates, content = RootTemplates(tmp_path), content_of(source)
    templates.remove_unused([])
    template = templates.path(content)
    templates.remove_unused([])
    assert not template.exists()
    assert (templates.path(content) / "etc" / "file").read_text() == "first"


def test_a_template_that_a_container_has_is_not_removed(tmp_path: Path, source: Path) -> None:
    templates = RootTemplates(tmp_path)
    template = templates.path(content_of(source))
    config = tmp_path / "0.launch"
    config.write_text(f'{{"lower": "{template}"}}')
    templates.remove_unused([config])
    assert template.exists()


def test_a_file_that_is_gone_is_left_out(tmp_path: Path, source: Path) -> None:
    content = content_of(source)
    source.unlink()
    assert not (RootTemplates(tmp_path).path(content) / "etc" / "file").exists()


def test_large_files_and_directories_are_mounted(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "large").write_bytes(b"x" * (1 << 20) + b"x")
    names = ("small", "large", ".", "missing")
    assert [is_copied(str(tmp_path / name)) for name in names] == [True, False, False, False]


def test_images_with_layers_and_containers_that_may_remount_have_no_template(tmp_path: Path) -> None:
    def uses_template(root: RootfsSource, *, may_remount: bool = False) -> bool:
        templates = RootTemplates(tmp_path)
        steps = rootfs_steps(root, [], scratch=tmp_path, devices=[], may_remount=may_remount, templates=templates)
        return any(step.get("template") for step in steps)

    assert uses_template(SOURCE)
    assert not uses_template(RootfsSource(machine=True, layers=(tmp_path,)))
    assert not uses_template(RootfsSource(machine=False, layers=(tmp_path,)))
    assert not uses_template(SOURCE, may_remount=True)


async def test_a_root_over_a_template_has_what_a_root_from_nothing_has(tmp_path: Path) -> None:
    """Also where the file system cannot have overlays: the template is copied."""
    support.need_sandbox()
    (tmp_path / "node").mkdir()
    listings = []
    async with support.shim_harness(tmp_path / "node") as harness:
        for number, kind in enumerate(("nothing", "template", "copy")):
            pod = await harness.pod(f"p{number}")
            templates = None if kind == "nothing" else RootTemplates(tmp_path)
            scratch = tmp_path / f"{number}.rw"
            steps = rootfs_steps(SOURCE, [], scratch=scratch, devices=[], templates=templates)
            if kind == "copy":
                steps[0]["upper"] = steps[0]["lower"][0][0]  # a directory cannot be both
                steps[0]["work"] = steps[0]["lower"][0][0]
            await harness.run(pod, "c", [sys.executable, "-c", LIST], steps=steps)
            listings.append(set(harness.output(pod, "c")))
    own = {f"/etc/{name}" for name in NETWORK_FILES}  # each pod has its own mounted there
    entries = [{line for line in listing if line.split()[0] not in own} for listing in listings]
    assert entries[0] == entries[1]
    assert entries[0] == entries[2]
