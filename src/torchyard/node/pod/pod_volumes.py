"""The volumes of one pod: mounted before its containers start, refreshed while they run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from torchyard.api.objects import Object
from torchyard.node.context import NodeContext
from torchyard.node.pod.pod_data import PodData
from torchyard.node.volumes.mounter import REFRESHED_KINDS, MountedVolume, VolumeMounter


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
        )

    async def mount(self) -> None:
        """Raises VolumeError while a volume cannot be mounted."""
        mounter = self._mounter()
        volumes = self._pod()["spec"].get("volumes") or ()
        self.mounted = {volume["name"]: await mounter.mount(volume) for volume in volumes}

    def refresh_later(self) -> None:
        self._refresh_at = time.time() + self._settings.volume_refresh_seconds

    async def refresh(self, now: float) -> float | None:
        """Write changed config maps, secrets and fields into the running pod, when due. Returns when that is next."""
        volumes = [volume for volume in self._pod()["spec"].get("volumes") or () if REFRESHED_KINDS & set(volume)]
        if not volumes:
            return None
        if now >= self._refresh_at:
            self._refresh_at = now + self._settings.volume_refresh_seconds
            mounter = self._mounter()
            for volume in volumes:
                await mounter.mount(volume)
        return self._refresh_at
