"""What each kind of volume is on this machine. An unsupported kind is refused by name."""

from __future__ import annotations

import base64
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.api import quantity
from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod.kubelet_messages import REASON_FAILED_MOUNT, object_not_found
from torchyard.api.volume import mount_messages as messages
from torchyard.api.volume.messages import claim_missing
from torchyard.node.resources.cgroups import MAX_MEMORY
from torchyard.node.shim import mount_sources
from torchyard.node.threads import in_thread
from torchyard.node.volumes import nfs
from torchyard.node.volumes.atomic_writer import FileProjection, write
from torchyard.node.volumes.ownership import FsGroup

Fetch = Callable[[str, str], Awaitable[Object | None]]  # (kind, name): an object of the pod's namespace, or a PV
NFS = "nfs"  # the kind that is mounted in a pod's directory
Token = Callable[[Object], Awaitable[str]]  # a serviceAccountToken source → a token


class VolumeError(YardError):
    """A volume cannot be mounted yet; shown as the event FailedMount, and tried again."""

    code = REASON_FAILED_MOUNT
    temporary = True
    volume = ""  # its name, once it is known


def volumes_dir(pod_dir: Path, kind: str) -> Path:
    """The volumes of one kind in a pod's directory."""
    return pod_dir / "volumes" / kind


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """Where a volume's files are. With `memory` the shim mounts a tmpfs of that many bytes there (0: unlimited)."""

    path: Path
    read_only: bool = False
    memory: int | None = None
    host_path_type: str | None = None  # of a hostPath: what the shim checks again when it opens the path
    private: tuple[Path, ...] = ()  # directories that a hostPath must not be, contain or belong to


@dataclass(frozen=True, slots=True)
class VolumeMounter:
    """Mounts the volumes of one pod (the kubelet's SetUp)."""

    pod_dir: Path  # the pod's own directory
    state: Path  # of the node and the plane; no pod may mount it
    fetch: Fetch
    token: Token
    field: Callable[[str, Object], str] = field(repr=False)
    claims: Path | None = None  # the part of the state that holds the volumes of claims
    pod: str = ""  # its name, with which the names of its ephemeral claims begin
    fs_group: FsGroup | None = None  # the group of the files
    fs_user: int | None = None  # the user of all containers, who owns the tokens

    async def mount(self, volume: Object) -> MountedVolume:
        name = volume["name"]
        kind = next((key for key in volume if key != "name" and volume[key] is not None), "emptyDir")
        set_up = _KINDS.get(kind)
        if set_up is None:
            raise VolumeError(messages.kind_unsupported(name, kind), hint=messages.supported_kinds(_KINDS))
        return await set_up(self, name, volume.get(kind) or {})

    def _directory(self, kind: str, name: str) -> Path:
        return volumes_dir(self.pod_dir, kind) / name

    async def _empty(self, name: str, source: Object) -> MountedVolume:
        path = self._directory("empty", name)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        if source.get("medium") == "Memory":
            size = source.get("sizeLimit")
            return MountedVolume(path, memory=min(quantity.parse(str(size)).value, MAX_MEMORY) if size else 0)
        return MountedVolume(path)

    async def _host_path(self, name: str, source: Object) -> MountedVolume:
        return await self._checked_host_path(Path(source["path"]), source.get("type") or "")

    async def _checked_host_path(self, path: Path, kind: str, *, read_only: bool = False) -> MountedVolume:
        # in a thread: the path may be on a share that does not respond
        await in_thread(check_host_path, path, kind, state=self.state)
        return MountedVolume(path, read_only, host_path_type=kind, private=(self.state,))

    async def _claim(self, name: str, source: Object) -> MountedVolume:
        claim = await self.fetch("PersistentVolumeClaim", source["claimName"])
        if claim is None:
            raise VolumeError(claim_missing(source["claimName"]))
        volume_name = claim["spec"].get("volumeName")
        if not volume_name or (claim.get("status") or {}).get("phase") != "Bound":
            raise VolumeError(messages.claim_not_bound(claim["metadata"]["namespace"], source["claimName"]))
        volume = await self.fetch("PersistentVolume", volume_name)
        if volume is None:
            raise VolumeError(messages.volume_missing(volume_name))
        spec = volume["spec"]
        read_only = bool(source.get("readOnly")) or spec.get("accessModes") == ["ReadOnlyMany"]
        if "local" in spec:
            path = Path(spec["local"]["path"])
            own = self._volume_of_claim(path)
            if not (own or path).exists():
                raise VolumeError(messages.path_missing(path))
            return (
                MountedVolume(own, read_only) if own else await self._checked_host_path(path, "", read_only=read_only)
            )
        if "hostPath" in spec:
            path = Path(spec["hostPath"]["path"])
            kind = spec["hostPath"].get("type") or ""
            if not kind and not path.exists():
                # a class like `manual` names a directory that its first user creates
                kind = "DirectoryOrCreate"
            return await self._checked_host_path(path, kind, read_only=read_only)
        if "nfs" in spec:
            return await self._nfs(volume_name, spec["nfs"], spec.get("mountOptions") or ())
        kinds = ", ".join(sorted(key for key in spec if isinstance(spec[key], dict) and key != "claimRef"))
        raise VolumeError(messages.source_unsupported(volume_name, kinds))

    def _volume_of_claim(self, path: Path) -> Path | None:
        """The directory that was provisioned for a claim: one of those that the node keeps, and not a link."""
        if self.claims is None:
            return None
        real, claims = path.resolve(), self.claims.resolve()
        return real if real.parent == claims else None

    async def _ephemeral(self, name: str, source: Object) -> MountedVolume:
        return await self._claim(name, {"claimName": f"{self.pod}-{name}"})

    async def _nfs(self, name: str, source: Object, options: Iterable[str] = ()) -> MountedVolume:
        read_only = bool(source.get("readOnly"))
        path = self._directory(NFS, name)
        try:
            await nfs.mount(f"{source['server']}:{source['path']}", path, [*options, *(["ro"] if read_only else [])])
        except nfs.MountError as error:
            raise VolumeError(f'volume "{name}": {error.message}', hint=error.hint) from error
        return MountedVolume(path, read_only)

    async def _config_map(self, name: str, source: Object) -> MountedVolume:
        files = await self._keys("ConfigMap", source.get("name") or "", source)
        return self._write("configmap", name, files)

    async def _secret(self, name: str, source: Object) -> MountedVolume:
        files = await self._keys("Secret", source.get("secretName") or "", source)
        return self._write("secret", name, files)

    async def _downward(self, name: str, source: Object) -> MountedVolume:
        return self._write("downward", name, self._fields(source))

    async def _projected(self, name: str, source: Object) -> MountedVolume:
        mode = source.get("defaultMode")
        files: dict[str, FileProjection] = {}
        for projected in source.get("sources") or ():
            for kind, part in projected.items():
                part_with_mode = {"defaultMode": mode, **(part or {})}
                if kind == "configMap":
                    files |= await self._keys("ConfigMap", part["name"], part_with_mode)
                elif kind == "secret":
                    files |= await self._keys("Secret", part["name"], part_with_mode)
                elif kind == "downwardAPI":
                    files |= self._fields(part_with_mode)
                elif kind == "serviceAccountToken":
                    files[_relative(part["path"])] = FileProjection(
                        (await self.token(part)).encode(), self._token_mode(mode), self.fs_user
                    )
                else:
                    raise VolumeError(messages.projection_unsupported(name, kind))
        return self._write("projected", name, files)

    def _write(self, kind: str, name: str, files: dict[str, FileProjection]) -> MountedVolume:
        path = self._directory(kind, name)
        try:
            # as the kubelet, which writes all but config maps into a tmpfs; containers mount them read-only
            write(path, files, self.fs_group, mode=0o777 if kind == "configmap" else 0o1777)
        except OSError as error:  # `a` and `a/b` cannot both be files
            raise VolumeError(messages.not_written(name, str(error))) from error
        return MountedVolume(path, read_only=True)

    def _token_mode(self, default: int | None) -> int:
        """As the kubelet: only the user or group for whom a token is made reads it; else all, by the mode."""
        return 0o600 if self.fs_user is not None or self.fs_group is not None else _mode(default, None)

    async def _keys(self, kind: str, name: str, source: Object) -> dict[str, FileProjection]:
        referenced = await self.fetch(kind, name)
        if referenced is None:
            if source.get("optional"):
                return {}
            raise VolumeError(object_not_found(kind, name))
        data = decode_data(kind, referenced)
        items = source.get("items")
        if not items:
            return {
                _relative(key): FileProjection(value, _mode(source.get("defaultMode"), None))
                for key, value in data.items()
            }
        files = {}
        for item in items:
            if item["key"] not in data:
                if source.get("optional"):
                    continue
                raise VolumeError(messages.key_missing(kind, item["key"]))
            files[_relative(item["path"])] = FileProjection(
                data[item["key"]], _mode(source.get("defaultMode"), item.get("mode"))
            )
        return files

    def _fields(self, source: Object) -> dict[str, FileProjection]:
        files = {}
        for item in source.get("items") or ():
            kind = "fieldRef" if item.get("fieldRef") else "resourceFieldRef"
            text = self.field(kind, item[kind])
            files[_relative(item["path"])] = FileProjection(
                text.encode(), _mode(source.get("defaultMode"), item.get("mode"))
            )
        return files


_KINDS: dict[str, Callable[[VolumeMounter, str, Object], Awaitable[MountedVolume]]] = {
    "emptyDir": VolumeMounter._empty,
    "hostPath": VolumeMounter._host_path,
    "persistentVolumeClaim": VolumeMounter._claim,
    "ephemeral": VolumeMounter._ephemeral,
    NFS: VolumeMounter._nfs,
    "configMap": VolumeMounter._config_map,
    "secret": VolumeMounter._secret,
    "downwardAPI": VolumeMounter._downward,
    "projected": VolumeMounter._projected,
}

# Kinds whose content is refreshed from the API while a pod runs.
REFRESHED_KINDS = frozenset({"configMap", "secret", "downwardAPI", "projected"})


def decode_data(kind: str, source: Object) -> dict[str, bytes]:
    """The keys of a config map or secret as bytes."""
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in (source.get("data") or {}).items()}
    plain = {key: str(value).encode() for key, value in (source.get("data") or {}).items()}
    return plain | {key: base64.b64decode(value) for key, value in (source.get("binaryData") or {}).items()}


def _mode(default: int | None, own: int | None) -> int:
    return own if own is not None else default if default is not None else 0o644


def _relative(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or not path or parts[0].startswith(".."):
        raise VolumeError(messages.path_leaves_volume(path))
    return path


_HOST_TYPES = {
    "Directory": "directory",
    "DirectoryOrCreate": "directory",
    "File": "file",
    "FileOrCreate": "file",
    "Socket": "socket file",
    "CharDevice": "character device",
    "BlockDevice": "block device",
}


def check_host_path(path: Path, kind: str, *, state: Path) -> None:
    """Check a hostPath against its type; `…OrCreate` creates it. The node's own files are never a volume.

    The shim opens and checks the path again, and mounts what it has opened.
    """
    if kind and kind not in _HOST_TYPES:
        raise VolumeError(messages.path_type_unknown(kind))
    try:
        os.close(mount_sources.open_host_path(str(path), kind, private=[str(state)]))
    except mount_sources.HoldsState:
        raise VolumeError(messages.path_holds_state(path), hint=messages.PATH_HOLDS_STATE_HINT) from None
    except mount_sources.WrongType:
        raise VolumeError(messages.path_type_differs(path, _HOST_TYPES[kind])) from None
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise VolumeError(messages.path_not_opened(path, getattr(error, "strerror", "") or str(error))) from error


def resolve_sub_path(volume: Path, sub_path: str) -> Path:
    """The path of a subPath, created if missing, for a container engine: it mounts by name."""
    root = os.open(volume, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        descriptor = mount_sources.open_sub_path(root, sub_path)
        try:
            return Path(f"/proc/self/fd/{descriptor}").readlink()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise VolumeError(messages.sub_path_leaves_volume(sub_path)) from error
    finally:
        os.close(root)
