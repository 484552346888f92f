"""Real images that podman or docker holds: asked for, never pulled."""

from __future__ import annotations

import asyncio

from torchyard.node.images.model import Image, ImageConfig, full_name
from torchyard.node.runtime.rootfs_steps import RootfsSource


async def find(engine: str, name: str) -> Image | None:
    """The engine's image of that name; its configuration stays the engine's business."""
    process = await asyncio.create_subprocess_exec(
        *(engine, "image", "inspect", "--format", "{{.Id}}", name),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        said, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.communicate()  # or else the event loop may end before it has seen the process end
        raise
    if process.returncode:
        return None
    digest = said.decode().strip().removeprefix("sha256:")
    return Image(full_name(name), f"sha256:{digest}", RootfsSource(machine=False), ImageConfig(), engine=True)
