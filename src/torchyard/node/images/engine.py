"""Images that podman or docker has on this machine. They are never pulled."""

from __future__ import annotations

import asyncio

from torchyard.node.images.model import Image, ImageConfig, full_name
from torchyard.node.runtime.rootfs_steps import RootfsSource


async def find(engine: str, name: str) -> Image | None:
    """The engine's image of that name. The engine itself applies its config."""
    process = await asyncio.create_subprocess_exec(
        *(engine, "image", "inspect", "--format", "{{.Id}}", name),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.communicate()  # otherwise the event loop may close before it sees the process end
        raise
    if process.returncode:
        return None
    digest = output.decode().strip().removeprefix("sha256:")
    return Image(full_name(name), f"sha256:{digest}", RootfsSource(machine=False), ImageConfig(), engine=True)
