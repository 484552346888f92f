"""Measures what a pod with storage limits has on disk, and says when it must be evicted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from torchyard.core.pod.ephemeral_storage import StorageUsage, eviction_message, has_storage_limits
from torchyard.node.context import NodeContext
from torchyard.node.pod.background import retry_after_errors
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.resources import disk_usage
from torchyard.node.volumes.mounter import volumes_dir


class StorageMonitor:
    """`evict` is called with a message, once, when the pod exceeds a limit."""

    def __init__(self, context: NodeContext, sandbox: PodSandbox, *, evict: Callable[[str], None]) -> None:
        self._context, self._sandbox, self._evict = context, sandbox, evict
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Measure from now on, if the pod has limits."""
        if self._task is None and has_storage_limits(self._sandbox.pod):
            metadata = self._sandbox.pod["metadata"]
            pod = f"{metadata['namespace']}/{metadata['name']}"
            self._task = asyncio.create_task(retry_after_errors(self._run, name="storage limits", pod=pod))

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            started = time.monotonic()
            usage = await self._measure()
            message = eviction_message(self._sandbox.pod, usage) if usage else ""
            if message:
                self._evict(message)
                return
            # a pod with very many files is measured less often
            await asyncio.sleep(max(self._context.settings.storage_check_seconds, 2 * (time.monotonic() - started)))

    async def _measure(self) -> StorageUsage | None:
        pod_dir = self._sandbox.dir
        containers = {name: str(pod_dir.container(name)) for name in pod_dir.container_names()}
        volumes = {
            volume["name"]: str(volumes_dir(pod_dir.path, "empty") / volume["name"])
            for volume in self._sandbox.pod["spec"].get("volumes") or ()
            if volume.get("emptyDir") is not None
        }
        async with self._context.disk_usage_slots:
            usage = await disk_usage.measure([*containers.values(), *volumes.values()])
        if usage is None:
            return None
        return StorageUsage(
            containers={name: usage[path] for name, path in containers.items()},
            volumes={name: usage[path] for name, path in volumes.items()},
        )
