"""What each kind of volume is on this machine. A kind that is not served is refused by name."""

from __future__ import annotations

import base64
import stat
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.api import quantity
from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.node.volumes import nfs
from torchyard.node.volumes.atomic_writer import FileProjection, write

Fetch = Callable[[str, str], Awaitable[Object | None]]  # (kind, name): an object of the pod's namespace, or a PV
NFS = "nfs"  # the kind of volume that is mounted below a pod's directory
Token = Callable[[Object], Awaitable[str]]  # a serviceAccountToken source → a token


class VolumeError(YardError):
    """A volume cannot be had yet; shown as FailedMount and tried again."""

    code = "FailedMount"
    temporary = True


def volumes_of(pod_dir: Path, kind: str) -> Path:
    """Where the volumes of one kind lie in a pod's directory."""
    return pod_dir / "volumes" / kind


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """Where a volume's files are. `memory` asks the shim for a tmpfs of that many bytes there (0: unlimited)."""

    path: Path
    read_only: bool = False
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class VolumeMounter:
    """Everything a pod's volumes are made from."""

    pod_dir: Path  # the pod's own directory
    state: Path  # the node's and the plane's, which no pod may mount
    fetch: Fetch
    token: Token
    field: Callable[[str, Object], str] = field(repr=False)
    claims: Path | None = None  # what lies below is for claims alone, though it is within the state
    pod: str = ""  # its name, after which the claims it brings along are called

    async def prepare(self, volume: Object) -> MountedVolume:
        name = volume["name"]
        kind = next((key for key in volume if key != "name" and volume[key] is not None), "emptyDir")
        maker = _MAKERS.get(kind)
        if maker is None:
            served = ", ".join(sorted(_MAKERS))
            raise VolumeError(
                f'volume "{name}": {kind} volumes are not served by this node', hint=f"served are {served}"
            )
        return await maker(self, name, volume.get(kind) or {})

    def _directory(self, kind: str, name: str) -> Path:
        return volumes_of(self.pod_dir, kind) / name

    async def _empty(self, name: str, source: Object) -> MountedVolume:
        path = self._directory("empty", name)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        if source.get("medium") == "Memory":
            size = source.get("sizeLimit")
            return MountedVolume(path, memory=quantity.parse(str(size)).value if size else 0)
        return MountedVolume(path)

    async def _host_path(self, name: str, source: Object) -> MountedVolume:
        path = Path(source["path"])
        check_host_path(path, source.get("type") or "", state=self.state)
        return MountedVolume(path)

    async def _claim(self, name: str, source: Object) -> MountedVolume:
        claim = await self.fetch("PersistentVolumeClaim", source["claimName"])
        if claim is None:
            raise VolumeError(f'persistentvolumeclaim "{source["claimName"]}" not found')
        bound = claim["spec"].get("volumeName")
        if not bound or (claim.get("status") or {}).get("phase") != "Bound":
            raise VolumeError(f"PVC {claim['metadata']['namespace']}/{source['claimName']} is not bound")
        persistent = await self.fetch("PersistentVolume", bound)
        if persistent is None:
            raise VolumeError(f'persistentvolume "{bound}" not found')
        spec = persistent["spec"]
        read_only = bool(source.get("readOnly")) or spec.get("accessModes") == ["ReadOnlyMany"]
        if "local" in spec:
            path = Path(spec["local"]["path"])
            if not self._is_made_for_claims(path):
                check_host_path(path, "", state=self.state, must_exist=True)
            elif not path.exists():
                raise VolumeError(f'path "{path}" does not exist')
            return MountedVolume(path, read_only)
        if "hostPath" in spec:
            path = Path(spec["hostPath"]["path"])
            kind = spec["hostPath"].get("type") or ""
            if not kind and not path.exists():
                # a class like `manual` names a directory that the first user makes
                kind = "DirectoryOrCreate"
            check_host_path(path, kind, state=self.state)
            return MountedVolume(path, read_only)
        if "nfs" in spec:
            return await self._nfs(bound, spec["nfs"], spec.get("mountOptions") or ())
        kinds = ", ".join(sorted(key for key in spec if isinstance(spec[key], dict) and key != "claimRef"))
        raise VolumeError(f'persistentvolume "{bound}": {kinds} volumes are not served by this node')

    def _is_made_for_claims(self, path: Path) -> bool:
        return self.claims is not None and path.resolve().parent == self.claims.resolve()

    async def _ephemeral(self, name: str, source: Object) -> MountedVolume:
        return await self._claim(name, {"claimName": f"{self.pod}-{name}"})

    async def _nfs(self, name: str, source: Object, options: Iterable[str] = ()) -> MountedVolume:
        read_only = bool(source.get("readOnly"))
        path = self._directory(NFS, name)
        try:
            await nfs.mount(f"{source['server']}:{source['path']}", path, [*options, *(["ro"] if read_only else [])])
        except nfs.MountError as failed:
            raise VolumeError(f'volume "{name}": {failed.message}', hint=failed.hint) from failed
        return MountedVolume(path, read_only)

    async def _config_map(self, name: str, source: Object) -> MountedVolume:
        files = await self._keys("ConfigMap", source.get("name") or "", source)
        return self._written("configmap", name, files)

    async def _secret(self, name: str, source: Object) -> MountedVolume:
        files = await self._keys("Secret", source.get("secretName") or "", source)
        return self._written("secret", name, files)

    async def _downward(self, name: str, source: Object) -> MountedVolume:
        return self._written("downward", name, self._fields(source))

    async def _projected(self, name: str, source: Object) -> MountedVolume:
        mode = source.get("defaultMode")
        files: dict[str, FileProjection] = {}
        for one in source.get("sources") or ():
            for kind, part in one.items():
                part_with_mode = {"defaultMode": mode, **(part or {})}
                if kind == "configMap":
                    files |= await self._keys("ConfigMap", part["name"], part_with_mode)
                elif kind == "secret":
                    files |= await self._keys("Secret", part["name"], part_with_mode)
                elif kind == "downwardAPI":
                    files |= self._fields(part_with_mode)
                elif kind == "serviceAccountToken":
                    files[_safe(part["path"])] = FileProjection(
                        (await self.token(part)).encode(), 0o600 | _mode(mode, None) & 0o044
                    )
                else:
                    raise VolumeError(f'volume "{name}": a projected {kind} is not served by this node')
        return self._written("projected", name, files)

    def _written(self, kind: str, name: str, files: dict[str, FileProjection]) -> MountedVolume:
        path = self._directory(kind, name)
        write(path, files)
        return MountedVolume(path, read_only=True)

    async def _keys(self, kind: str, name: str, source: Object) -> dict[str, FileProjection]:
        found = await self.fetch(kind, name)
        if found is None:
            if source.get("optional"):
                return {}
            raise VolumeError(f'{kind.lower()} "{name}" not found')
        data = contents(kind, found)
        items = source.get("items")
        if not items:
            return {
                _safe(key): FileProjection(value, _mode(source.get("defaultMode"), None)) for key, value in data.items()
            }
        files = {}
        for item in items:
            if item["key"] not in data:
                if source.get("optional"):
                    continue
                raise VolumeError(f"{kind.lower()} references non-existent {kind.lower()} key: {item['key']}")
            files[_safe(item["path"])] = FileProjection(
                data[item["key"]], _mode(source.get("defaultMode"), item.get("mode"))
            )
        return files

    def _fields(self, source: Object) -> dict[str, FileProjection]:
        files = {}
        for item in source.get("items") or ():
            kind = "fieldRef" if item.get("fieldRef") else "resourceFieldRef"
            text = self.field(kind, item[kind])
            files[_safe(item["path"])] = FileProjection(
                text.encode(), _mode(source.get("defaultMode"), item.get("mode"))
            )
        return files


_MAKERS: dict[str, Callable[[VolumeMounter, str, Object], Awaitable[MountedVolume]]] = {
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

# Kinds whose content follows the API while a pod runs.
CHANGING = frozenset({"configMap", "secret", "downwardAPI", "projected"})


def contents(kind: str, found: Object) -> dict[str, bytes]:
    """The keys of a config map or secret as bytes."""
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    plain = {key: str(value).encode() for key, value in (found.get("data") or {}).items()}
    return plain | {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}


def _mode(default: int | None, own: int | None) -> int:
    return own if own is not None else default if default is not None else 0o644


def _safe(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or not path:
        raise VolumeError(f"the path {path!r} leaves its volume")
    return path


_HOST_TYPES: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket file"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}


def check_host_path(path: Path, kind: str, *, state: Path, must_exist: bool = False) -> None:
    """The path's type is what was asked for; `…OrCreate` makes it. The node's own files are nobody's volume."""
    real = path.resolve()
    if real.is_relative_to(state.resolve()) or state.resolve().is_relative_to(real):
        raise VolumeError(f"hostPath {path} holds this node's own state", hint="choose a directory beside it")
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
        kind = "Directory"
    elif kind == "FileOrCreate":
        path.touch(exist_ok=True)
        kind = "File"
    if not kind:
        # upstream's runtime makes a missing path as a directory
        if not path.exists():
            if must_exist:
                raise VolumeError(f'path "{path}" does not exist')
            path.mkdir(parents=True)
        return
    check = _HOST_TYPES.get(kind)
    if check is None:
        raise VolumeError(f"hostPath type {kind} is unknown")
    if not path.exists() or not check[0](path.stat().st_mode):
        raise VolumeError(f"hostPath type check failed: {path} is not a {check[1]}")


def below(volume: Path, sub_path: str) -> Path:
    """A subPath, made if missing. A link that leads out of the volume is refused."""
    if sub_path.startswith("/") or ".." in sub_path.split("/"):
        raise VolumeError(f'subPath "{sub_path}" must be relative and must not contain ".."')
    path = volume / sub_path
    real, root = path.resolve(), volume.resolve()
    if not real.is_relative_to(root):
        raise VolumeError(f'failed to prepare subPath for volumeMount: "{sub_path}" leads out of its volume')
    if not real.exists():
        real.mkdir(parents=True)
    return real
