"""The volumes of one pod: mounted before its containers start, refreshed while they run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.api.objects import Object
from torchyard.api.volume import mount_messages as messages
from torchyard.core.pod.view import init_containers, main_containers
from torchyard.node.context import NodeContext
from torchyard.node.pod.container_user import effective
from torchyard.node.pod.pod_data import PodData
from torchyard.node.threads import in_thread
from torchyard.node.volumes.mounter import (
    NFS,
    REFRESHED_KINDS,
    MountedVolume,
    VolumeError,
    VolumeMounter,
    volumes_dir,
)
from torchyard.node.volumes.ownership import FsGroup

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import TmpfsVolume

# Kinds whose existing files are given to the pod's fsGroup; those that the node writes have it from the start.
GROUP_KINDS = frozenset(("emptyDir", "persistentVolumeClaim", "ephemeral"))


def fs_group(pod: Object) -> FsGroup | None:
    """The group of a pod's volumes; None for an ordinary user, who cannot give files to groups."""
    context = pod["spec"].get("securityContext") or {}
    if context.get("fsGroup") is None or os.geteuid() != 0:
        return None
    return FsGroup(context["fsGroup"], on_root_mismatch=context.get("fsGroupChangePolicy") == "OnRootMismatch")


def fs_user(pod: Object) -> int | None:
    """The user that all containers of a pod run as; None if they differ, or for an ordinary user."""
    users = {effective(container, pod, "runAsUser") for container in [*init_containers(pod), *main_containers(pod)]}
    return users.pop() if len(users) == 1 and os.geteuid() == 0 else None


async def _mount(mounter: VolumeMounter, volume: Object) -> MountedVolume:
    try:
        return await mounter.mount(volume)
    except VolumeError as error:
        error.volume = volume["name"]
        raise


class PodVolumes:
    def __init__(self, context: NodeContext, pod_dir: Path, data: PodData, *, pod: Callable[[], Object]) -> None:
        self._settings, self._pod_dir, self._data, self._pod = context.settings, pod_dir, data, pod
        self._refresh_at = 0.0
        self.mounted: dict[str, MountedVolume] = {}

    def _mounter(self) -> VolumeMounter:
        return VolumeMounter(
            pod_dir=self._pod_dir,
            state=self._settings.private or self._settings.root,
            claims=self._settings.claims,
            fetch=self._data.fetch,
            token=self._data.token,
            field=lambda kind, reference: self._data.field(kind, reference, {}),
            pod=self._pod()["metadata"]["name"],
            fs_group=fs_group(self._pod()),
            fs_user=fs_user(self._pod()),
        )

    async def mount(self) -> None:
        """Raises VolumeError while a volume cannot be mounted."""
        mounter = self._mounter()
        volumes = self._pod()["spec"].get("volumes") or ()
        self.mounted = {volume["name"]: await _mount(mounter, volume) for volume in volumes}
        for volume in volumes:
            await self._give_to_group(volume, self.mounted[volume["name"]])

    async def _give_to_group(self, volume: Object, mounted: MountedVolume) -> None:
        """fsGroup, as the kubelet: for volumes that the node created, and not for paths of the machine."""
        group = fs_group(self._pod())
        if group is None or mounted.memory is not None or not GROUP_KINDS & set(volume):
            return
        if mounted.read_only or mounted.host_path_type is not None:
            return
        if mounted.path.is_relative_to(volumes_dir(self._pod_dir, NFS)):
            return
        # an emptyDir that has its group was set up before, and its content belongs to the containers
        group = FsGroup(group.gid, on_root_mismatch=group.on_root_mismatch or "emptyDir" in volume)
        try:
            await in_thread(group.apply, mounted.path, read_only=False)
        except OSError as error:
            failed = VolumeError(messages.group_not_set(volume["name"], error))
            failed.volume = volume["name"]
            raise failed from error

    def tmpfs(self) -> list[TmpfsVolume]:
        """The volumes in memory, which the shim mounts."""
        group = fs_group(self._pod())
        volumes: list[TmpfsVolume] = [
            {"path": str(volume.path), "size": volume.memory}
            for volume in self.mounted.values()
            if volume.memory is not None
        ]
        for volume in volumes:
            if group is not None:
                volume["gid"] = group.gid
        return volumes

    def refresh_later(self) -> None:
        self._refresh_at = time.monotonic() + self._settings.volume_refresh_seconds

    async def refresh(self, now: float) -> float | None:
        """Write changed config maps, secrets and fields into the running pod, when due. Returns when that is next."""
        volumes = [volume for volume in self._pod()["spec"].get("volumes") or () if REFRESHED_KINDS & set(volume)]
        if not volumes:
            return None
        if time.monotonic() >= self._refresh_at:
            self.refresh_later()
            mounter = self._mounter()
            for volume in volumes:
                await _mount(mounter, volume)
        return now + max(0.0, self._refresh_at - time.monotonic())
