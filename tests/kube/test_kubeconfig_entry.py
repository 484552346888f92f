"""Our entry in a kubeconfig: writing, merging, removing."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kubectl import need, versions

from torchyard.kube import kubeconfig_entry
from torchyard.kube.kubeconfig import KubeconfigError, load
from torchyard.kube.kubeconfig_entry import build_config, merge, remove, write

OWN = build_config("torchyard", server="https://127.0.0.1:6443", authority=b"ca", token="secret")
THEIRS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "preferences": {"colors": True},
    "current-context": "work",
    "clusters": [{"name": "work", "cluster": {"server": "https://work"}}],
    "users": [{"name": "work", "user": {"token": "t"}}],
    "contexts": [{"name": "work", "context": {"cluster": "work", "user": "work"}}],
}


def environ(*files: Path, home: Path | None = None) -> dict[str, str]:
    return {"HOME": str(home or "/nonexistent"), "KUBECONFIG": os.pathsep.join(map(str, files))}


def put(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.dump(content))
    return path


def names(path: Path, kind: str = "contexts") -> list[str]:
    return [entry["name"] for entry in yaml.safe_load(path.read_text())[kind]]


def test_a_written_kubeconfig_is_private_and_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kubeconfig"
    write(path, build_config("torchyard", server="https://x:1", authority=b"ca", certificate=b"crt", key=b"key"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = load(path)
    assert (connection.server, connection.authority, connection.certificate, connection.key) == (
        "https://x:1",
        b"ca",
        b"crt",
        b"key",
    )


@pytest.mark.clients
def test_an_entry_that_kubectl_rewrote_is_still_recognized_as_ours(tmp_path: Path) -> None:
    need()
    program = str(next(iter(versions().values())))
    path = tmp_path / "config"
    write(path, OWN)
    command = [program, "--kubeconfig", str(path), "config", "set-context", "torchyard", "--namespace=team"]
    subprocess.run(command, check=True, capture_output=True)
    assert load(path).namespace == "team"
    merge(OWN, environ=environ(path))
    assert load(path).namespace == "default"


def test_merge_keeps_other_entries_and_the_current_context(tmp_path: Path) -> None:
    path = put(tmp_path / "config", THEIRS)
    assert merge(OWN, environ=environ(path)) == path
    after = yaml.safe_load(path.read_text())
    for kind in ("clusters", "users", "contexts"):
        assert after.pop(kind) == [*THEIRS[kind], *OWN[kind]]
    assert after == {key: THEIRS[key] for key in ("apiVersion", "kind", "preferences", "current-context")}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_merge_updates_an_existing_entry_in_place(tmp_path: Path) -> None:
    path = put(tmp_path / "config", THEIRS)
    merge(OWN, environ=environ(path))
    merge(build_config("torchyard", server="https://other", authority=b"ca2", token="t2"), environ=environ(path))
    assert names(path) == ["work", "torchyard"]
    assert load(path, context="torchyard").server == "https://other"


@pytest.mark.parametrize(("switch", "before", "after"), [(True, "work", "torchyard"), (False, "", "torchyard")])
def test_merge_sets_the_current_context_with_switch_or_if_there_is_none(
    tmp_path: Path, switch: bool, before: str, after: str
) -> None:
    path = put(tmp_path / "config", {**THEIRS, "current-context": before})
    merge(OWN, environ=environ(path), switch=switch)
    assert yaml.safe_load(path.read_text())["current-context"] == after


def test_merge_overwrites_a_foreign_entry_only_with_replace(tmp_path: Path) -> None:
    foreign = {**THEIRS, "clusters": [{"name": "torchyard", "cluster": {"server": "https://theirs"}}]}
    path = put(tmp_path / "config", foreign)
    before = path.read_bytes()
    with pytest.raises(KubeconfigError, match='already has a cluster "torchyard" that is not ours'):
        merge(OWN, environ=environ(path))
    assert path.read_bytes() == before
    merge(OWN, environ=environ(path), replace=True)
    assert load(path, context="torchyard").server == "https://127.0.0.1:6443"


@pytest.mark.parametrize("content", ["a: [", "[]", "contexts: 3"])
def test_merge_does_not_change_an_invalid_file(tmp_path: Path, content: str) -> None:
    path = put(tmp_path / "config", content)
    with pytest.raises(KubeconfigError):
        merge(OWN, environ=environ(path))
    assert path.read_text() == content
    assert [path.name for path in tmp_path.iterdir()] == ["config"]


def test_merge_chooses_the_file_as_kubectl_does(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert merge(OWN, environ=environ(first, second)) == second
    put(first, THEIRS)
    assert merge(OWN, environ=environ(first, second)) == first
    home = tmp_path / "home"
    assert merge(OWN, environ={"HOME": str(home)}) == home / ".kube" / "config"


def test_merge_follows_symbolic_links(tmp_path: Path) -> None:
    real = put(tmp_path / "real", THEIRS)
    link = tmp_path / "config"
    link.symlink_to(real)
    merge(OWN, environ=environ(link))
    assert link.is_symlink()
    assert names(real) == ["work", "torchyard"]


def test_merge_does_not_change_a_file_locked_by_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig_entry, "LOCK_TIMEOUT_SECONDS", 0.0)
    path = put(tmp_path / "config", THEIRS)
    lock = put(tmp_path / "config.lock", "")
    with pytest.raises(KubeconfigError, match=r"locked by another process .*remove .*config\.lock"):
        merge(OWN, environ=environ(path))
    assert lock.exists()
    assert names(path) == ["work"]


def test_remove_deletes_only_our_entry(tmp_path: Path) -> None:
    path = put(tmp_path / "config", THEIRS)
    merge(OWN, environ=environ(path), switch=True)
    assert remove("torchyard", environ=environ(path)) == [path]
    assert yaml.safe_load(path.read_text()) == {**THEIRS, "current-context": ""}
    assert remove("torchyard", environ=environ(path)) == []
    assert remove("work", environ=environ(path)) == []
    assert names(path) == ["work"]
