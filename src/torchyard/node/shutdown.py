"""Ends everything that a node runs, from its state directory alone: pods, network, zygote."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.api.errors import YardError
from torchyard.node.shim import pids, records, zygote
from torchyard.node.shim.client import ClusterNetwork, ShimClient, ShimTimeout, ZygoteClient
from torchyard.node.volumes import nfs
from torchyard.node.volumes.mounter import NFS, volumes_dir

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ZygoteSettings

log = logging.getLogger(__name__)


async def stop_pods(root: Path) -> int:
    """Kill every container, end every shim, unmount their volumes; returns the number of pods.

    Their records and logs stay.
    """
    pod_dirs = list((root / "pods").iterdir()) if (root / "pods").is_dir() else []
    stopped = sum(await asyncio.gather(*(_stop(ShimClient(pod_dir)) for pod_dir in pod_dirs)))
    for process in (ClusterNetwork(root), ZygoteClient(root)):
        with contextlib.suppress(YardError):
            await process.shutdown()
    for pod_dir in pod_dirs:
        await nfs.unmount_all(volumes_dir(pod_dir, NFS))
    settings: ZygoteSettings | None = records.read(str(root / zygote.SETTINGS))
    limit = settings.get("pids") if settings else None
    if limit:
        pids.remove_unused(limit["parent"])
    return stopped


async def _stop(shim: ShimClient) -> bool:
    try:
        async with await shim.channel() as channel:
            await shim.shutdown(node_stops=True)
            with contextlib.suppress(YardError):
                await channel.receive()  # returns when the shim ends
    except ShimTimeout as error:
        log.warning("pod may still be running: error=%r", str(error))
        return False
    except YardError:
        return False
    return True
