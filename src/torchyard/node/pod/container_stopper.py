"""Ending a container: preStop hook, SIGTERM, the rest of the grace period, SIGKILL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339
from torchyard.core.pod.view import every_container
from torchyard.node.pod.container_config import MARK
from torchyard.node.pod.handlers import act
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.shim.client import ShimClient, ShimNotRunning

# after a hook that used everything up, a container still gets this long, as from the kubelet
MINIMUM_SECONDS = 2.0
_USUAL_GRACE_SECONDS = 30.0


class ContainerStopper:
    """Ends containers in the background, each once."""

    def __init__(self, sandbox: PodSandbox) -> None:
        self._sandbox = sandbox
        self._ending: dict[str, asyncio.Task[None]] = {}

    def stop(self, name: str, *, announce: bool = True, grace: float | None = None) -> None:
        running = self._ending.get(name)
        if running and not running.done():
            if _seconds_left(self._sandbox.pod) > 0:
                return
            running.cancel()  # a shorter grace period came in: go on with the kill
        if announce:
            self._sandbox.event("Killing", f"Stopping container {name}", container=name)
        container = next(one for one in every_container(self._sandbox.pod) if one["name"] == name)
        seconds = grace if grace is not None else _seconds_left(self._sandbox.pod)
        work = stop(self._sandbox.shim, container, host=self._sandbox.ip, seconds=seconds)
        self._ending[name] = asyncio.create_task(work)

    def forget(self, name: str) -> None:
        """The container is started again: a kill meant for the attempt before must not hit this one."""
        if ending := self._ending.pop(name, None):
            ending.cancel()

    async def close(self) -> None:
        for task in self._ending.values():
            task.cancel()
        await asyncio.gather(*self._ending.values(), return_exceptions=True)


def _seconds_left(pod: Object) -> float:
    """What is left of the grace period; before a deletion, all of it."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp"):
        if metadata.get("deletionGracePeriodSeconds") == 0:
            return 0.0
        return max(1.0, parse_rfc3339(metadata["deletionTimestamp"]).timestamp() - time.time())
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    return _USUAL_GRACE_SECONDS if grace is None else float(grace)


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
    except ShimNotRunning:
        return


def _signal_of(container: Object) -> int:
    asked = (container.get("lifecycle") or {}).get("stopSignal")
    return int(getattr(signal, asked, signal.SIGTERM)) if asked else int(signal.SIGTERM)


def kill_leftovers(uid: str) -> None:
    """Without pid namespaces a killed shim leaves its containers' children behind; they carry the pod's mark."""
    wanted = f"{MARK}={uid}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
