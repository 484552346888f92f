"""Ends everything a node has running, from its state directory alone: pods, network, zygote."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.node.shim.client import ClusterNetwork, ShimClient, ShimTimeout, ZygoteClient
from torchyard.node.volumes import nfs
from torchyard.node.volumes.mounter import NFS, volumes_of

log = logging.getLogger(__name__)


async def stop_pods(root: Path) -> int:
    """Kill every container, end every shim, unmount what was mounted for them; answers how many pods that were.

    Their records and logs stay.
    """
    homes = list((root / "pods").iterdir()) if (root / "pods").is_dir() else []
    stopped = sum(await asyncio.gather(*(_stop(ShimClient(home)) for home in homes)))
    for part in (ClusterNetwork(root), ZygoteClient(root, {})):
        with contextlib.suppress(YardError):
            await part.shutdown()
    for home in homes:
        await nfs.unmount_all(volumes_of(home, NFS))
    return stopped


async def _stop(shim: ShimClient) -> bool:
    try:
        async with await shim.channel() as channel:
            await shim.shutdown(node_stops=True)
            with contextlib.suppress(YardError):
                await channel.receive()  # its end
    except ShimTimeout as error:
        log.warning("a pod may run on: %s", error)
        return False
    except YardError:
        return False
    return True
