"""Ending a container: preStop hook, SIGTERM, the rest of the grace period, SIGKILL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from torchyard.api.errors import YardError
from torchyard.node.pod.handlers import act
from torchyard.node.shim.client import ShimClient, ShimGone

Object = dict[str, Any]
# after a hook that used everything up, a container still gets this long, as from the kubelet
MINIMUM_SECONDS = 2.0
MARK = "TORCHYARD_POD_UID"


async def stop(shim: ShimClient, container: Object, *, host: str, seconds: float) -> None:
    """Returns when the signals are sent; that the container has ended is told by the shim."""
    name = container["name"]
    end = time.monotonic() + seconds
    try:
        hook = (container.get("lifecycle") or {}).get("preStop")
        if hook and seconds > 0:
            with contextlib.suppress(YardError):
                await act(shim, container, hook, host=host, seconds=seconds)
            end = max(end, time.monotonic() + MINIMUM_SECONDS)
        if seconds > 0:
            await shim.signal(name, _signal_of(container))
            await asyncio.sleep(max(0.0, end - time.monotonic()))
        await shim.signal(name, signal.SIGKILL)
    except ShimGone:
        return


def _signal_of(container: Object) -> int:
    asked = (container.get("lifecycle") or {}).get("stopSignal")
    return int(getattr(signal, asked, signal.SIGTERM)) if asked else int(signal.SIGTERM)


def kill_strays(uid: str) -> None:
    """Without pid namespaces a killed shim leaves its containers' children behind; they carry the pod's mark."""
    wanted = f"{MARK}={uid}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
