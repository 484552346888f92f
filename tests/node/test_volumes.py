"""Volumes: what each kind becomes on this machine, and what is refused."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from torchyard.api.objects import Object
from torchyard.node.resources.cgroups import MAX_MEMORY
from torchyard.node.volumes import atomic_writer
from torchyard.node.volumes.mounter import VolumeError, VolumeMounter, check_host_path, resolve_sub_path

OBJECTS: dict[tuple[str, str], Object] = {
    ("ConfigMap", "cm"): {"data": {"a": "1", "b": "2"}, "binaryData": {"raw": base64.b64encode(b"\0\1").decode()}},
    ("Secret", "s"): {"data": {"key": base64.b64encode(b"hidden").decode()}},
    ("PersistentVolumeClaim", "loose"): {
        "metadata": {"namespace": "default"},
        "spec": {},
        "status": {"phase": "Pending"},
    },
}


@pytest.fixture
def sources(tmp_path: Path) -> VolumeMounter:
    async def fetch(kind: str, name: str) -> Object | None:
        return OBJECTS.get((kind, name))

    async def token(source: Object) -> str:
        return f"token for {source.get('audience', 'the server')}"

    def field(kind: str, reference: Object) -> str:
        return f"{kind} {reference.get('fieldPath', reference.get('resource'))}"

    (tmp_path / "node").mkdir()
    return VolumeMounter(
        pod_dir=tmp_path / "node" / "pod", state=tmp_path / "node", fetch=fetch, token=token, field=field
    )


def shown(path: Path) -> dict[str, bytes]:
    """What a container sees: visible names and contents."""
    files_there = [item for item in path.rglob("*") if item.is_file()]
    hidden = {item for item in files_there if any(part.startswith("..") for part in item.relative_to(path).parts)}
    visible = [item for item in files_there if item not in hidden]
    return {str(item.relative_to(path)): item.read_bytes() for item in visible}


@pytest.mark.parametrize(
    ("volume", "content"),
    [
        ({"configMap": {"name": "cm"}}, {"a": b"1", "b": b"2", "raw": b"\0\1"}),
        ({"configMap": {"name": "cm", "items": [{"key": "a", "path": "deep/er"}]}}, {}),
        ({"configMap": {"name": "none", "optional": True}}, {}),
        ({"secret": {"secretName": "s"}}, {"key": b"hidden"}),
        (
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": b"fieldRef metadata.name"},
        ),
        (
            {
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "token", "audience": "x"}},
                        {"configMap": {"name": "cm", "items": [{"key": "b", "path": "b"}]}},
                        {"secret": {"name": "s"}},
                    ]
                }
            },
            {"token": b"token for x", "b": b"2", "key": b"hidden"},
        ),
    ],
)
async def test_config_maps_secrets_and_fields_become_files(
    sources: VolumeMounter, volume: Object, content: dict[str, bytes]
) -> None:
    prepared = await sources.mount({"name": "v", **volume})
    assert prepared.read_only
    assert shown(prepared.path) == content
    if "items" in (volume.get("configMap") or {}):
        assert (prepared.path / "deep" / "er").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        ({"configMap": {"name": "cm", "items": [{"key": "zz", "path": "x"}]}}, "non-existent configmap key: zz"),
        ({"configMap": {"name": "cm", "items": [{"key": "a", "path": "../x"}]}}, "leads out of its volume"),
        ({"persistentVolumeClaim": {"claimName": "none"}}, 'persistentvolumeclaim "none" not found'),
        ({"persistentVolumeClaim": {"claimName": "loose"}}, "is not bound"),
        ({"nfs": {"server": "s", "path": "/p"}}, "NFS share s:/p needs root and mount.nfs on this machine"),
        ({"awsElasticBlockStore": {"volumeID": "x"}}, "does not support awsElasticBlockStore volumes"),
    ],
)
async def test_a_volume_that_cannot_be_mounted_is_named(
    sources: VolumeMounter, volume: Object, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # no mount program
    with pytest.raises(VolumeError, match=words):
        await sources.mount({"name": "v", **volume})


async def test_a_memory_volume_is_a_tmpfs_of_the_shim(sources: VolumeMounter) -> None:
    prepared = await sources.mount({"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
    assert prepared.memory == 1 << 20
    assert (await sources.mount({"name": "w", "emptyDir": {}})).memory is None


async def test_a_bound_claim_is_mounted_from_its_directory(sources: VolumeMounter, tmp_path: Path) -> None:
    OBJECTS["PersistentVolumeClaim", "c"] = {"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
    OBJECTS["PersistentVolume", "pv"] = {
        "spec": {"hostPath": {"path": str(tmp_path / "data")}, "accessModes": ["ReadWriteOnce"]}
    }
    prepared = await sources.mount({"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}})
    assert (prepared.path, prepared.read_only) == (tmp_path / "data", True)
    assert prepared.path.is_dir()


@pytest.mark.parametrize(
    ("kind", "existing", "words"),
    [
        ("Directory", "directory", ""),
        ("Directory", "file", "is not a directory"),
        ("Directory", "", "is not a directory"),
        ("DirectoryOrCreate", "", ""),
        ("File", "file", ""),
        ("File", "directory", "is not a file"),
        ("FileOrCreate", "", ""),
        ("Socket", "file", "is not a socket file"),
        ("CharDevice", "file", "is not a character device"),
        ("BlockDevice", "file", "is not a block device"),
        ("", "", ""),
        ("Nonsense", "file", "is unknown"),
    ],
)
def test_host_paths_must_have_their_type(tmp_path: Path, kind: str, existing: str, words: str) -> None:
    path, state = tmp_path / "path", tmp_path / "state"
    state.mkdir()
    if existing == "directory":
        path.mkdir()
    elif existing == "file":
        path.touch()
    if words:
        with pytest.raises(VolumeError, match=words):
            check_host_path(path, kind, state=state)
    else:
        check_host_path(path, kind, state=state)
        assert path.exists()


@pytest.mark.parametrize("path", ["", "pods/other", "..", "link"])
def test_the_node_state_cannot_be_a_volume(tmp_path: Path, path: str) -> None:
    state = tmp_path / "state"
    (state / "pods" / "other").mkdir(parents=True)
    os.symlink(state / "pods", state / "link")
    with pytest.raises(VolumeError, match="own state"):
        check_host_path(state / path, "", state=state)


@pytest.mark.parametrize("sub_path", ["../x", "a/../../x", "/abs", "out", "out/deeper"])
def test_a_sub_path_stays_in_its_volume(tmp_path: Path, sub_path: str) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    volume.mkdir()
    outside.mkdir()
    os.symlink(outside, volume / "out")
    with pytest.raises(VolumeError):
        resolve_sub_path(volume, sub_path)
    assert list(outside.iterdir()) == []


def test_a_sub_path_is_created_and_may_contain_inner_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    assert resolve_sub_path(tmp_path, "new/deep").is_dir()
    assert resolve_sub_path(tmp_path, "link") == tmp_path / "real"


def test_an_update_is_one_rename_and_removes_old_names(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    assert atomic_writer.write(
        volume, {"a": atomic_writer.FileProjection(b"1", 0o644), "d/b": atomic_writer.FileProjection(b"2", 0o600)}
    )
    before = (volume / "..data").readlink()
    assert not atomic_writer.write(
        volume, {"a": atomic_writer.FileProjection(b"1", 0o644), "d/b": atomic_writer.FileProjection(b"2", 0o600)}
    )
    assert (volume / "..data").readlink() == before
    assert atomic_writer.write(volume, {"a": atomic_writer.FileProjection(b"9", 0o644)})
    assert (volume / "a").read_bytes() == b"9"
    assert not (volume / "d").exists()
    assert not (volume / before).exists()


@pytest.mark.parametrize(("limit", "size"), [("1Gi", 1 << 30), ("1e30", MAX_MEMORY), (str(2**63 - 1), MAX_MEMORY)])
async def test_a_volume_in_memory_has_a_size_that_the_kernel_takes(
    sources: VolumeMounter, limit: str, size: int
) -> None:
    mounted = await sources.mount({"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": limit}})
    assert mounted.memory == size
