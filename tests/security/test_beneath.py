"""Paths below an open directory: the kernel's resolution and the component-by-component one give the same answers."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.security.exchange import exchanging

from torchyard.node.shim import beneath


@pytest.fixture(params=["openat2", "component by component"])
def resolver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "openat2" and not beneath.has_openat2():
        pytest.skip("this kernel has no openat2")
    monkeypatch.setattr(beneath, "has_openat2", lambda: request.param == "openat2")
    return str(request.param)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def place(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    finally:
        os.close(descriptor)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for directory in (volume / "real" / "deep", outside):
        directory.mkdir(parents=True)
    (volume / "file").write_text("text")
    (outside / "secret").write_text("secret")
    links = {
        "inner": "real",
        "chain": "inner/deep",
        "around": "real/../real/deep/..",
        "absolute-inside": str(volume / "real"),
        "absolute": str(outside),
        "climbing": "../outside",
        "climbing-back": "../volume/real",
        "far": "../../../../../../../../../../etc",
        "cycle": "cycle",
        "magic": "/proc/self/root",
    }
    for name, goal in links.items():
        (volume / name).symlink_to(goal)
    return volume


@pytest.mark.parametrize(
    ("path", "goal"),
    [
        ("", ""), ("real", "real"), ("./real//deep/", "real/deep"), ("file", "file"), ("inner", "real"),
        ("chain", "real/deep"), ("around", "real"), ("absolute-inside/deep", "real/deep"),
    ],
)  # fmt: skip
def test_links_that_stay_in_the_volume_are_followed(resolver: str, volume: Path, path: str, goal: str) -> None:
    with opened(volume) as root:
        assert place(beneath.open_path(root, path)) == str(volume / goal).rstrip("/")


@pytest.mark.parametrize(
    "path",
    ["..", "real/../..", "absolute", "absolute/secret", "climbing/secret", "climbing-back", "far/passwd", "magic"],
)
def test_a_path_that_leaves_the_volume_is_refused(resolver: str, volume: Path, path: str) -> None:
    with opened(volume) as root:
        for operation in (beneath.open_path, beneath.make_directories, beneath.make_file):
            with pytest.raises(OSError) as refused:
                operation(root, path)
            assert refused.value.errno in (errno.EXDEV, errno.ELOOP), refused.value
    assert sorted(os.listdir(volume.parent / "outside")) == ["secret"]


@pytest.mark.parametrize(
    ("path", "goal"),
    [
        ("/real", "real"), ("/../../real", "real"), ("/inner/deep", "real/deep"), ("/far/..", ""), ("/climbing/..", ""),
        ("/in-root", "real/deep"),
    ],
)  # fmt: skip
def test_links_in_a_root_are_followed_as_the_container_would(resolver: str, volume: Path, path: str, goal: str) -> None:
    (volume / "in-root").symlink_to("/../real/deep")
    (volume / "etc").mkdir()
    (volume / "outside").mkdir()
    with opened(volume) as root:
        assert place(beneath.open_path(root, path, in_root=True)) == str(volume / goal).rstrip("/")


def test_missing_directories_are_created_where_links_lead(resolver: str, volume: Path) -> None:
    (volume / "dangling").symlink_to("/new/place")
    with opened(volume) as root:
        assert place(beneath.make_directories(root, "/dangling/below", in_root=True)) == f"{volume}/new/place/below"
        assert place(beneath.make_file(root, "/absolute/x", in_root=True)) == f"{volume}{volume.parent}/outside/x"
        assert place(beneath.make_directories(root, "inner/new", mode=0o2770)) == f"{volume}/real/new"
    assert (volume / "real" / "new").stat().st_mode & 0o7777 == 0o2770
    assert sorted(os.listdir(volume.parent / "outside")) == ["secret"]


@pytest.mark.parametrize("in_root", [False, True])
def test_a_cycle_of_links_and_a_file_on_the_way_are_refused(resolver: str, volume: Path, *, in_root: bool) -> None:
    with opened(volume) as root:
        with pytest.raises(OSError, match="symbolic links"):
            beneath.open_path(root, "cycle/x", in_root=in_root)
        with pytest.raises(NotADirectoryError):
            beneath.open_path(root, "file/x", in_root=in_root)


def test_nothing_outside_is_opened_while_directory_and_link_are_exchanged(resolver: str, volume: Path) -> None:
    (volume / "link").symlink_to(volume.parent / "outside")
    results = {"inside": 0, "refused": 0}
    with opened(volume) as root, exchanging(volume / "real", volume / "link"):
        for _ in range(4000):
            try:
                where = place(beneath.open_path(root, "real"))
            except OSError as error:
                assert error.errno in (errno.EXDEV, errno.ENOENT), error
                results["refused"] += 1
            else:
                assert where in (f"{volume}/real", f"{volume}/link"), where
                results["inside"] += 1
    assert all(results.values()), results


def test_every_descriptor_is_closed(resolver: str, volume: Path) -> None:
    with opened(volume) as root:
        before = sorted(os.listdir("/proc/self/fd"))
        for path in ("chain", "absolute/secret", "cycle/x", "file/x", "missing"):
            with contextlib.suppress(OSError):
                os.close(beneath.open_path(root, path))
            with contextlib.suppress(OSError):
                os.close(beneath.make_directories(root, f"{path}/new"))
        assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_null_character_does_not_cut_a_path_short(resolver: str, volume: Path) -> None:
    with opened(volume) as root, pytest.raises(ValueError, match="null"):
        beneath.open_path(root, "real\0/deep")
