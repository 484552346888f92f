"""The program of initializers: files, claims, the Hub and S3, and what it says when something is wrong."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchyard.initializer import file_source
from torchyard.initializer.__main__ import main
from torchyard.initializer.brought_files import MARKER
from torchyard.initializer.errors import InitializerError
from torchyard.initializer.initialize import initialize


def brought(target: Path) -> dict[str, str]:
    files = (path for path in target.rglob("*") if path.is_file() and path.name != MARKER)
    return {str(path.relative_to(target)): path.read_text() for path in files}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    (directory / "train").mkdir(parents=True)
    (directory / "train" / "0.txt").write_text("zero")
    (directory / "labels.csv").write_text("labels")
    return directory


def test_a_directory_is_copied_once(source: Path, tmp_path: Path) -> None:
    variables, target = {"STORAGE_URI": f"file://{source}"}, tmp_path / "target"
    assert initialize("dataset", variables, target) == f"2 files of file://{source} are in {target}"
    assert brought(target) == {"train/0.txt": "zero", "labels.csv": "labels"}
    (source / "labels.csv").write_text("changed")
    assert initialize("dataset", variables, target) == f"file://{source} is in {target} already"
    assert brought(target)["labels.csv"] == "labels"


def test_after_an_interruption_everything_is_copied_again(source: Path, tmp_path: Path) -> None:
    variables, target = {"STORAGE_URI": f"file://{source}"}, tmp_path / "target"
    initialize("dataset", variables, target)
    (target / MARKER).unlink()
    (target / "labels.csv").write_text("cut")
    initialize("dataset", variables, target)
    assert brought(target) == {"train/0.txt": "zero", "labels.csv": "labels"}


def test_another_source_replaces_what_was_brought_and_nothing_else(source: Path, tmp_path: Path) -> None:
    target, other = tmp_path / "target", tmp_path / "other.txt"
    target.mkdir()
    (target / "mine.txt").write_text("mine")
    initialize("dataset", {"STORAGE_URI": f"file://{source}"}, target)
    (target / "labels.csv").write_text("written by a program")
    (target / "checkpoint.pt").write_text("checkpoint")
    other.write_text("other")
    initialize("dataset", {"STORAGE_URI": f"file://{other}"}, target)
    kept = {"mine.txt": "mine", "labels.csv": "written by a program", "checkpoint.pt": "checkpoint"}
    assert brought(target) == {"other.txt": "other", **kept}
    assert not (target / "train").exists()


def test_a_marker_does_not_lead_out_of_the_volume(source: Path, tmp_path: Path) -> None:
    target, outside = tmp_path / "target", source / "labels.csv"
    target.mkdir()
    (target / "link").symlink_to(source)
    stamp = [outside.stat().st_size, outside.stat().st_mtime_ns]
    files = dict.fromkeys(["../source/labels.csv", str(outside), "link/labels.csv"], stamp)
    (target / MARKER).write_text(json.dumps({"uri": "s3://bucket/x", "files": files}))
    initialize("dataset", {"STORAGE_URI": f"file://{source}/train"}, target)
    assert outside.read_text() == "labels"


@pytest.mark.parametrize("text", ["", "s3://bucket/x", "[]", '{"uri": "s3://bucket/x"}', '{"uri": "", "files": [1]}'])
def test_an_unknown_marker_is_replaced(text: str, source: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / MARKER).write_text(text)
    initialize("dataset", {"STORAGE_URI": f"file://{source}"}, tmp_path / "target")
    assert brought(tmp_path / "target") == {"train/0.txt": "zero", "labels.csv": "labels"}


def test_an_interruption_while_files_are_moved_leaves_none_that_is_not_known(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, other = tmp_path / "target", tmp_path / "other.txt"
    other.write_text("other")
    with monkeypatch.context() as patched, pytest.raises(InitializerError, match="cannot be written: cut off"):
        patched.setattr(shutil, "rmtree", interrupt)
        initialize("dataset", {"STORAGE_URI": f"file://{source}"}, target)
    initialize("dataset", {"STORAGE_URI": f"file://{other}"}, target)
    assert brought(target) == {"other.txt": "other"}


def interrupt(_path: Path) -> None:
    raise OSError(errno.EIO, "cut off")


def test_a_single_file_and_names_with_spaces(tmp_path: Path) -> None:
    (tmp_path / "my data").write_text("x")
    initialize("dataset", {"STORAGE_URI": f"file://{tmp_path}/my%20data"}, tmp_path / "target")
    assert brought(tmp_path / "target") == {"my data": "x"}


def test_links_to_files_are_copied_and_links_to_directories_are_not_followed(source: Path, tmp_path: Path) -> None:
    (source / "link.csv").symlink_to("labels.csv")
    (source / "circle").symlink_to(source)
    initialize("dataset", {"STORAGE_URI": f"file://{source}"}, tmp_path / "target")
    assert set(brought(tmp_path / "target")) == {"train/0.txt", "labels.csv", "link.csv"}


def test_files_of_a_config_map_are_brought_once(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "..2026_11_18").mkdir(parents=True)
    (volume / "..2026_11_18" / "a.csv").write_text("1")
    (volume / "..data").symlink_to("..2026_11_18")
    (volume / "a.csv").symlink_to("..data/a.csv")
    initialize("dataset", {"STORAGE_URI": f"file://{volume}"}, tmp_path / "target")
    assert brought(tmp_path / "target") == {"a.csv": "1"}


def test_models_come_without_the_weights_of_other_frameworks(source: Path, tmp_path: Path) -> None:
    (source / "weights.h5").write_text("")
    initialize("model", {"STORAGE_URI": f"file://{source}"}, tmp_path / "target")
    assert "weights.h5" not in brought(tmp_path / "target")
    variables = {"STORAGE_URI": f"file://{source}", "IGNORE_PATTERNS": "*.csv, train/*"}
    initialize("model", variables, tmp_path / "other")
    assert set(brought(tmp_path / "other")) == {"weights.h5"}


def test_a_claim_is_read_where_it_is_mounted(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source.bring_files, "__kwdefaults__", {"claims": source})
    initialize("dataset", {"STORAGE_URI": "pvc://data/train"}, tmp_path / "target")
    assert brought(tmp_path / "target") == {"0.txt": "zero"}


def test_without_a_uri_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert initialize("model", {}, tmp_path / "target") == "there is no model to bring: STORAGE_URI is empty"
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        (
            "ftp://host/x",
            "spec.initializer.dataset.storageUri: 'ftp://host/x' has the scheme 'ftp', which is not suppo",
        ),
        ("cache://x", "use file:///data/mnist, pvc://claim/mnist, hf://owner/name or s3://bucket/mnist"),
        ("file:///x?y=1", "has a query or a fragment; remove what comes after ? or #"),
        ("file://data/mnist", "names the machine 'data'; write three slashes: file:///data/mnist"),
        ("file:///no/such", "names /no/such, which does not exist in the container; mount the volume"),
        ("pvc://data/x", "needs the claim 'data' at /var/run/torchyard/claim, where nothing is mounted"),
        ("hf://owner", "does not name a repository; use hf://owner/name"),
        ("s3:///x", "does not name a bucket; use s3://bucket/prefix"),
        ("file://[", "is not a URI"),
    ],
)
def test_errors_name_the_field_the_reason_and_the_fix(uri: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InitializerError) as raised:
        initialize("dataset", {"STORAGE_URI": uri}, tmp_path / "target")
    assert words in str(raised.value)
    assert str(raised.value).startswith("spec.initializer.dataset.storageUri: ")


def test_a_path_does_not_leave_its_claim(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source.bring_files, "__kwdefaults__", {"claims": source / "train"})
    with pytest.raises(InitializerError, match="leads out of its claim"):
        initialize("dataset", {"STORAGE_URI": "pvc://data/%2e%2e/labels.csv"}, tmp_path / "target")


@pytest.mark.parametrize("uri", ["pvc://data", "pvc://data/inside", "pvc://data/inside/token"])
def test_a_link_does_not_bring_files_from_outside_the_claim(
    uri: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_source.bring_files, "__kwdefaults__", {"claims": source})
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "token").write_text("secret")
    (source / "token").symlink_to(tmp_path / "secret" / "token")
    (source / "inside").symlink_to(tmp_path / "secret")
    with pytest.raises(InitializerError, match="which leads out of its claim; replace the link by the file"):
        initialize("dataset", {"STORAGE_URI": uri}, tmp_path / "target")
    assert brought(tmp_path / "target") == {}


def test_links_within_a_claim_and_links_that_are_ignored_do_no_harm(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mount").symlink_to(source)
    monkeypatch.setattr(file_source.bring_files, "__kwdefaults__", {"claims": tmp_path / "mount"})
    (source / "link.csv").symlink_to("labels.csv")
    (source / "passwd").symlink_to("/etc/passwd")
    initialize("dataset", {"STORAGE_URI": "pvc://data", "IGNORE_PATTERNS": "passwd"}, tmp_path / "target")
    assert set(brought(tmp_path / "target")) == {"train/0.txt", "labels.csv", "link.csv"}


def test_a_volume_that_cannot_be_written_is_named(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InitializerError, match=r"the volume `initializer` of the runtime: .* cannot be written"):
        initialize("dataset", {"STORAGE_URI": f"file://{source}"}, tmp_path / "file" / "target")


class Hub:
    def __init__(self, error: Exception | None = None) -> None:
        self.asked: dict[str, Any] = {}
        self._error = error

    def snapshot_download(self, **options: Any) -> None:
        self.asked = options
        if self._error is not None:
            raise self._error
        (Path(options["local_dir"]) / "config.json").write_text("{}")


def test_a_snapshot_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    message = initialize("dataset", {"STORAGE_URI": "hf://ylecun/mnist", "ACCESS_TOKEN": "t"}, tmp_path / "target")
    assert message.startswith("1 files of hf://ylecun/mnist")
    assert brought(tmp_path / "target") == {"config.json": "{}"}
    assert Path(hub.asked.pop("local_dir")).parent == tmp_path / "target"
    assert hub.asked == {
        "repo_id": "ylecun/mnist",
        "repo_type": "dataset",
        "token": "t",
        "ignore_patterns": None,
    }


class RepositoryNotFoundError(Exception):
    """Has the name of the library's."""


class RefusedError(Exception):
    response = SimpleNamespace(status_code=401)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RepositoryNotFoundError(), "does not exist on the Hub; correct the name"),
        (RefusedError(), "spec.initializer.model.env[ACCESS_TOKEN]: 'hf://a/b' may not be read with this token"),
        (ConnectionError("no route"), "cannot be downloaded: ConnectionError: no route; check the network"),
    ],
)
def test_errors_of_the_hub(error: Exception, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(error))
    with pytest.raises(InitializerError) as raised:
        initialize("model", {"STORAGE_URI": "hf://a/b"}, tmp_path / "target")
    assert words in str(raised.value)


@pytest.mark.parametrize(("uri", "package"), [("hf://a/b", "huggingface_hub"), ("s3://a/b", "boto3")])
def test_a_library_that_is_missing_is_named(
    uri: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InitializerError, match=f"needs the package {package}.*pip install {package}"):
        initialize("dataset", {"STORAGE_URI": uri}, tmp_path / "target")


class Bucket:
    """Stands for boto3 and its clients."""

    def __init__(self, objects: dict[str, str], error: Exception | None = None, broken: str = "") -> None:
        self._objects, self._error, self.broken = objects, error, broken
        self.options: dict[str, Any] = {}
        self.downloads: list[str] = []

    def client(self, service: str, **options: Any) -> Bucket:
        assert service == "s3"
        self.options = options
        return self

    def get_paginator(self, _operation: str) -> Bucket:
        return self

    def paginate(self, Bucket: str, Prefix: str) -> list[dict[str, Any]]:
        assert Bucket == "bucket"
        if self._error is not None:
            raise self._error
        entries = [{"Key": key, "Size": len(text)} for key, text in self._objects.items() if key.startswith(Prefix)]
        return [{}, {"Contents": entries}]

    def download_file(self, _bucket: str, key: str, path: str) -> None:
        self.downloads.append(key)
        if key == self.broken:
            raise OSError("cut off")
        Path(path).write_text(self._objects[key])


def use(monkeypatch: pytest.MonkeyPatch, bucket: Bucket) -> Bucket:
    monkeypatch.setitem(sys.modules, "boto3", bucket)
    return bucket


def test_objects_of_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = {"mnist/": "", "mnist/a/1": "one", "mnist/2": "two", "mnist-old/3": "three"}
    bucket = use(monkeypatch, Bucket(objects))
    variables = {"STORAGE_URI": "s3://bucket/mnist", "ENDPOINT": "http://minio:9000", "ACCESS_KEY_ID": "k"}
    initialize("dataset", variables, tmp_path)
    assert brought(tmp_path) == {"a/1": "one", "2": "two"}
    assert bucket.options == {"endpoint_url": "http://minio:9000", "aws_access_key_id": "k"}


def test_an_interrupted_download_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = use(monkeypatch, Bucket({"mnist/1": "one", "mnist/2": "two"}, broken="mnist/2"))
    with pytest.raises(InitializerError, match="cannot be downloaded: OSError: cut off"):
        initialize("dataset", {"STORAGE_URI": "s3://bucket/mnist"}, tmp_path)
    bucket.broken = ""
    initialize("dataset", {"STORAGE_URI": "s3://bucket/mnist"}, tmp_path)
    assert bucket.downloads == ["mnist/1", "mnist/2", "mnist/2"]
    assert brought(tmp_path) == {"1": "one", "2": "two"}
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2", MARKER}


@pytest.mark.parametrize("broken", ["", "v1/b"])
def test_another_prefix_replaces_objects_of_the_same_names_and_sizes(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = {"v1/a": "old", "v1/b": "old", "v1/sub/c": "old", "v2/a": "new", "v2/b": "new"}
    use(monkeypatch, Bucket(objects, broken=broken))
    with pytest.raises(InitializerError) if broken else nullcontext():
        initialize("dataset", {"STORAGE_URI": "s3://bucket/v1"}, tmp_path)
    initialize("dataset", {"STORAGE_URI": "s3://bucket/v2"}, tmp_path)
    assert brought(tmp_path) == {"a": "new", "b": "new"}
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", MARKER}


class ClientError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


@pytest.mark.parametrize(
    ("bucket", "words"),
    [
        (Bucket({}), "'s3://bucket/x' has no objects; correct the bucket or the prefix"),
        (Bucket({"x/../../y": ""}), "which leads out of the volume; remove the object"),
        (Bucket({}, ClientError("AccessDenied")), "env[ACCESS_KEY_ID]: 's3://bucket/x' may not be read with these"),
        (Bucket({}, ClientError("NoSuchBucket")), "names a bucket that does not exist"),
        (Bucket({}, OSError("no route")), "cannot be downloaded: OSError: no route"),
    ],
)
def test_errors_of_a_bucket(bucket: Bucket, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, bucket)
    with pytest.raises(InitializerError) as raised:
        initialize("dataset", {"STORAGE_URI": "s3://bucket/x"}, tmp_path / "target")
    assert words in str(raised.value)


def test_the_command_exits_with_1_and_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STORAGE_URI", "file:///no/such")
    assert main(["dataset", "--target", str(tmp_path / "target")]) == 1
    assert capsys.readouterr().err.startswith("error: spec.initializer.dataset.storageUri: 'file:///no/such' names")
    monkeypatch.setenv("STORAGE_URI", "")
    assert main(["model", "--target", str(tmp_path / "target")]) == 0
