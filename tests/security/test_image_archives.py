"""Image archives with hostile members: nothing outside the image is read, written, changed or removed."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchyard.api.errors import YardError
from torchyard.node.images import python, unpack
from torchyard.node.images.load import load
from torchyard.node.images.store import ImageStore

CONFIG: dict[str, Any] = {"config": {"Cmd": ["sh"]}}


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images", python.describe(sys.executable))


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def layer(*members: tarfile.TarInfo, content: bytes = b"x") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info in members:
            if info.isreg():
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return out.getvalue()


def image(path: Path, *layers: bytes, config: Any = CONFIG, **files: bytes) -> Path:
    """What `docker save` writes."""
    contents = {f"{number}.tar": data for number, data in enumerate(layers)}
    manifest = [{"Config": "config.json", "RepoTags": ["bad:1"], "Layers": list(contents)}]
    contents |= {"config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    contents |= {name.replace("_", "."): data for name, data in files.items()}
    with tarfile.open(path, "w") as archive:
        for name, data in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def loaded(store: ImageStore, *members: tarfile.TarInfo, content: bytes = b"x") -> Path:
    load(store, image(store.directory.parent / "image.tar", layer(*members, content=content)))
    return store.resolve("bad:1").root.layers[0]


def test_a_hard_link_to_a_link_changes_no_mode_outside(store: ImageStore, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    tree = loaded(
        store,
        member("link", tarfile.SYMTYPE, linkname=str(victim)),
        member("hard", tarfile.LNKTYPE, linkname="link", mode=0o4777, uid=1234),
    )
    assert (victim.stat().st_mode & 0o7777, victim.stat().st_uid) == (0o600, os.geteuid())
    assert (tree / "hard").readlink() == victim


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh...", "deep/.wh...", "deep/.wh.."])
def test_a_whiteout_cannot_remove_its_own_directory_or_the_parent(store: ImageStore, tmp_path: Path, name: str) -> None:
    other = store.directory / "layers" / "other"
    other.mkdir(parents=True)
    with pytest.raises(YardError, match="a whiteout must name a file"):
        loaded(store, member("deep/file"), member(name))
    assert other.is_dir()
    assert [path.name for path in (store.directory / "layers").iterdir()] == ["other"]


def test_a_whiteout_through_a_link_removes_nothing_outside(store: ImageStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    for name in ("link/.wh.precious", "link/.wh..wh..opq"):
        loaded(store, member("link", tarfile.SYMTYPE, linkname=str(outside)), member(name))
    loaded(store, member("link", tarfile.SYMTYPE, linkname=str(outside)), member(".wh.link"))
    assert (outside / "precious").exists()


def test_absolute_names_links_and_climbing_links_stay_in_the_image(store: ImageStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    tree = loaded(
        store,
        member(f"{outside}/absolute"),
        member("way", tarfile.SYMTYPE, linkname=str(outside)),
        member("way/through"),
        member("up", tarfile.SYMTYPE, linkname=f"../../../../../../../../..{outside}"),
        member("up/climbed"),
        member("way", tarfile.DIRTYPE, mode=0o755),
        member("way/replaced"),
        member(f"/{outside}/hard", tarfile.LNKTYPE, linkname=f"{outside}/absolute"),
    )
    assert os.listdir(outside) == []
    inside = Path(f"{tree}{outside}")
    assert sorted(os.listdir(inside)) == ["absolute", "climbed", "hard", "through"]
    assert (tree / "way" / "replaced").is_file()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([member("../up")], "must not lead out of it"),
        ([member("a/../../up")], "must not lead out of it"),
        ([member("x" * 256)], "cannot be unpacked: File name too long"),
        ([member("/".join(["d" * 50] * 100))], "must have less than 4096 bytes"),
        ([member("a/" * 300 + "x")], "at most 200 directories"),
        ([member("hard", tarfile.LNKTYPE, linkname="/etc/shadow")], "cannot be unpacked: No such file"),
        ([member("hard", tarfile.LNKTYPE, linkname="../../etc/shadow")], "must not lead out of it"),
        (
            [member("d", tarfile.DIRTYPE), member("hard", tarfile.LNKTYPE, linkname="d")],
            "must name a file of the image",
        ),
        ([member("file"), member("file/below")], "cannot be unpacked: Not a directory"),
        ([member("a", tarfile.SYMTYPE, linkname="a"), member("a/x")], "cannot be unpacked: Too many levels"),
    ],
)
def test_what_cannot_be_in_an_image_is_refused_by_name(
    store: ImageStore, members: list[tarfile.TarInfo], words: str
) -> None:
    with pytest.raises(YardError, match=words):
        loaded(store, *members)
    assert list((store.directory / "layers").iterdir()) == []
    assert store.names() == {}


def test_devices_are_left_out_and_modes_kept(store: ImageStore) -> None:
    tree = loaded(
        store,
        member("device", tarfile.CHRTYPE, devmajor=1, devminor=5),
        member("disk", tarfile.BLKTYPE, devmajor=8, devminor=0),
        member("pipe", tarfile.FIFOTYPE, mode=0o640),
        member("setuid", mode=0o4755),
        member("sticky", tarfile.DIRTYPE, mode=0o1777),
    )
    modes = {path.name: (stat.S_IFMT(path.lstat().st_mode), path.lstat().st_mode & 0o7777) for path in tree.iterdir()}
    assert modes == {
        "pipe": (stat.S_IFIFO, 0o640),
        "setuid": (stat.S_IFREG, 0o4755),
        "sticky": (stat.S_IFDIR, 0o1777),
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes owners")
def test_an_invalid_owner_is_refused(store: ImageStore) -> None:
    with pytest.raises(YardError, match="the owner 4294967295:0 is not valid"):
        loaded(store, member("file", uid=(1 << 32) - 1))


def test_what_an_image_may_take_is_limited(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack.Budget, "for_disk", lambda directory: unpack.Budget(10_000_000, 100))
    zeros = layer(*(member(f"f{number}") for number in range(20)), content=bytes(1_000_000))
    with pytest.raises(YardError, match="f10: the image is larger than this node can hold"):
        load(store, image(store.directory.parent / "bomb.tar", gzip.compress(zeros)))
    many = [layer(*(member(f"f{number}") for number in range(60)), content=b"")] * 2
    with pytest.raises(YardError, match="f40: the image has more files than this node can hold"):
        load(store, image(store.directory.parent / "many.tar", *many))
    assert list((store.directory / "layers").iterdir()) == []


def huge_header() -> bytes:
    """A header that announces a name of a gigabyte."""
    info = member("x", tarfile.GNUTYPE_LONGNAME, size=1 << 30)
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(10 << 20)


def slow_header() -> bytes:
    """Digits without end, for which Python's own pattern needs quadratic time."""
    data = b"1" * 60_000
    info = member("x", tarfile.XHDTYPE, size=len(data))
    return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512) + bytes(1024)


def nested_headers() -> bytes:
    """Headers about headers, one level of recursion each."""
    data = b"11 path=ab\n"
    block = member("x", tarfile.XHDTYPE, size=len(data)).tobuf(tarfile.USTAR_FORMAT) + data.ljust(512, b"\0")
    return block * 5000 + bytes(1024)


DAMAGED: dict[str, Callable[[], bytes]] = {
    "huge header": huge_header,
    "slow header": slow_header,
    "nested headers": nested_headers,
    "cut short": lambda: layer(member("a"), content=bytes(5000))[:2000],
    "not gzip": lambda: b"\x1f\x8b" + bytes(100),
    "cut gzip": lambda: gzip.compress(layer(member("a"), content=os.urandom(50_000)))[:20_000],
    "not xz": lambda: b"\xfd7zXZ\0" + bytes(100),
    "zstd": lambda: b"\x28\xb5\x2f\xfd" + bytes(100),
    "text": lambda: b"no archive" * 100,
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_layer_or_archive_is_refused(store: ImageStore, tmp_path: Path, kind: str) -> None:
    data = DAMAGED[kind]()
    with pytest.raises(YardError, match="archive"):
        load(store, image(tmp_path / "image.tar", data))
    (tmp_path / "outer.tar").write_bytes(data)
    with pytest.raises(YardError, match="archive"):
        load(store, tmp_path / "outer.tar")
    assert not (store.directory / "layers").exists() or list((store.directory / "layers").iterdir()) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ([], "not a valid image archive"),
        ({"config": {"Env": "A=1"}}, "config.Env of the image is not a list of strings"),
        ({"config": {"Cmd": [1]}}, "config.Cmd of the image is not a list of strings"),
        ({"config": {"Entrypoint": ["a\0b"]}}, "config.Entrypoint of the image is not a list of strings"),
        ({"config": {"User": 5}}, "config.User of the image is not a string"),
        ({"config": {"Labels": [1]}}, "config.Labels of the image is not a map of strings"),
    ],
)
def test_a_config_that_is_not_one_is_refused(store: ImageStore, tmp_path: Path, config: Any, words: str) -> None:
    with pytest.raises(YardError, match=words):
        load(store, image(tmp_path / "image.tar", layer(member("a")), config=config))


@pytest.mark.parametrize(
    "manifest", [b"{}", b"[]", b"[1]", b'[{"Config": 1}]', b'[{"Config": "config.json", "Layers": 5}]', b"\xff", b"["]
)
def test_a_manifest_that_is_not_one_is_refused(store: ImageStore, tmp_path: Path, manifest: bytes) -> None:
    with pytest.raises(YardError, match="archive"):
        load(store, image(tmp_path / "image.tar", layer(member("a")), manifest_json=manifest))


def test_a_blob_must_have_its_digest(store: ImageStore, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    index = {"manifests": [{"digest": f"sha256:{hashlib.sha256(b'other').hexdigest()}"}]}
    with tarfile.open(path, "w") as archive:
        for name, data in {
            "index.json": json.dumps(index).encode(),
            f"blobs/sha256/{hashlib.sha256(b'other').hexdigest()}": b"{}",
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    with pytest.raises(YardError, match="is damaged: its digest is"):
        load(store, path)


@pytest.mark.parametrize("name", ["../../x", "Bad Name", "a:b:c", "", "x@sha256:zz"])
def test_an_invalid_name_of_an_image_is_refused(store: ImageStore, tmp_path: Path, name: str) -> None:
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["0.tar"]}]
    with pytest.raises(YardError):
        load(store, image(tmp_path / "i.tar", layer(member("a")), manifest_json=json.dumps(manifest).encode()))
    assert not (store.directory / "layers").exists()
