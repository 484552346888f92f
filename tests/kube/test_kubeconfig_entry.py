"""Our entry in a kubeconfig: written, merged into the user's, taken out again."""

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
    return {"HOME": str(home or "/nonexistent"), "KUBECONFIG": os.pathsep.join(str(one) for one in files)}


def put(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.dump(content))
    return path


def names(path: Path, kind: str = "contexts") -> list[str]:
    return [one["name"] for one in yaml.safe_load(path.read_text())[kind]]


def test_a_file_of_its_own_is_for_the_owner_only_and_readable_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kubeconfig"
    write(path, build_config("torchyard", server="https://x:1", authority=b"ca", certificate=b"crt", key=b"key"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = load(path)
    assert (found.server, found.authority, found.certificate, found.key) == ("https://x:1", b"ca", b"crt", b"key")


@pytest.mark.clients
def test_kubectl_reads_and_rewrites_what_we_wrote_and_we_still_know_it(tmp_path: Path) -> None:
    need()
    program = str(next(iter(versions().values())))
    path = tmp_path / "config"
    write(path, OWN)
    command = [program, "--kubeconfig", str(path), "config", "set-context", "torchyard", "--namespace=team"]
    subprocess.run(command, check=True, capture_output=True)
    assert load(path).namespace == "team"
    merge(OWN, environ=environ(path))
    assert load(path).namespace == "default"


def test_merging_keeps_the_rest_and_the_current_context(tmp_path: Path) -> None:
    path = put(tmp_path / "config", THEIRS)
    assert merge(OWN, environ=environ(path)) == path
    after = yaml.safe_load(path.read_text())
    for kind in ("clusters", "users", "contexts"):
        assert after.pop(kind) == [*THEIRS[kind], *OWN[kind]]
    assert after == {key: THEIRS[key] for key in ("apiVersion", "kind", "preferences", "current-context")}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_merging_again_updates_our_entry_in_place(tmp_path: Path) -> None:
    path = put(tmp_path / "config", THEIRS)
    merge(OWN, environ=environ(path))
    merge(build_config("torchyard", server="https://other", authority=b"ca2", token="t2"), environ=environ(path))
    assert names(path) == ["work", "torchyard"]
    assert load(path, context="torchyard").server == "https://other"


@pytest.mark.parametrize(("switch", "before", "after"), [(True, "work", "torchyard"), (False, "", "torchyard")])
def test_the_current_context_changes_when_asked_or_when_there_is_none(
    tmp_path: Path, switch: bool, before: str, after: str
) -> None:
    path = put(tmp_path / "config", {**THEIRS, "current-context": before})
    merge(OWN, environ=environ(path), switch=switch)
    assert yaml.safe_load(path.read_text())["current-context"] == after


def test_somebody_elses_entry_of_our_name_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    foreign = {**THEIRS, "clusters": [{"name": "torchyard", "cluster": {"server": "https://theirs"}}]}
    path = put(tmp_path / "config", foreign)
    before = path.read_bytes()
    with pytest.raises(KubeconfigError, match='already has a cluster "torchyard" that is not ours'):
        merge(OWN, environ=environ(path))
    assert path.read_bytes() == before
    merge(OWN, environ=environ(path), replace=True)
    assert load(path, context="torchyard").server == "https://127.0.0.1:6443"


@pytest.mark.parametrize("content", ["a: [", "[]", "contexts: 3"])
def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = put(tmp_path / "config", content)
    with pytest.raises(KubeconfigError):
        merge(OWN, environ=environ(path))
    assert path.read_text() == content
    assert [one.name for one in tmp_path.iterdir()] == ["config"]


def test_the_file_to_write_is_chosen_as_kubectl_chooses_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert merge(OWN, environ=environ(first, second)) == second
    put(first, THEIRS)
    assert merge(OWN, environ=environ(first, second)) == first
    home = tmp_path / "home"
    assert merge(OWN, environ={"HOME": str(home)}) == home / ".kube" / "config"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = put(tmp_path / "real", THEIRS)
    link = tmp_path / "config"
    link.symlink_to(real)
    merge(OWN, environ=environ(link))
    assert link.is_symlink()
    assert names(real) == ["work", "torchyard"]


def test_a_file_locked_by_kubectl_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig_entry, "LOCK_PATIENCE", 0.0)
    path = put(tmp_path / "config", THEIRS)
    lock = put(tmp_path / "config.lock", "")
    with pytest.raises(KubeconfigError, match=r"locked by another program .*remove .*config\.lock"):
        merge(OWN, environ=environ(path))
    assert lock.exists()
    assert names(path) == ["work"]


def test_our_entry_can_be_taken_out_and_nothing_else_goes(tmp_path: Path) -> None:
    path = put(tmp_path / "config", THEIRS)
    merge(OWN, environ=environ(path), switch=True)
    assert remove("torchyard", environ=environ(path)) == [path]
    assert yaml.safe_load(path.read_text()) == {**THEIRS, "current-context": ""}
    assert remove("torchyard", environ=environ(path)) == []
    assert remove("work", environ=environ(path)) == []
    assert names(path) == ["work"]
