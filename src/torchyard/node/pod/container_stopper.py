"""Ending a container: preStop hook, SIGTERM, the rest of the grace period, SIGKILL."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.api.times import parse_rfc3339
from torchyard.core.pod.view import every_container
from torchyard.node.pod.container_config import POD_UID_VARIABLE
from torchyard.node.pod.handlers import run_hook
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.shim.client import ShimClient, ShimNotRunning, ShimRequestError

log = logging.getLogger(__name__)

# After a hook that used up the grace period a container still gets this long, as from the kubelet.
MINIMUM_SECONDS = 2.0
_DEFAULT_GRACE_SECONDS = 30.0
_RETRY_SECONDS = 1.0
# The end of a grace period is computed from two clocks: only so much less is a shorter one.
_SHORTER_SECONDS = 0.5


class _Stop(NamedTuple):
    """The end of a container that is under way."""

    task: asyncio.Task[None]
    end: float  # of the grace period, on the monotonic clock


class ContainerStopper:
    """Ends containers in the background, each once, and sooner when the grace period is shortened."""

    def __init__(self, sandbox: PodSandbox) -> None:
        self._sandbox = sandbox
        self._stops: dict[str, _Stop] = {}

    def stop(self, name: str, *, announce: bool = True, grace: float | None = None) -> None:
        seconds, now = grace if grace is not None else _seconds_left(self._sandbox.pod), time.monotonic()
        running = self._stops.get(name)
        is_under_way = running is not None and not running.task.done()
        if running is not None and is_under_way:
            if seconds > 0 and now + seconds > running.end - _SHORTER_SECONDS:
                return
            running.task.cancel()
        if announce:
            self._sandbox.event(messages.REASON_KILLING, messages.stopping(name), container=name)
        container = next(container for container in every_container(self._sandbox.pod) if container["name"] == name)
        stop = self._stop(container, seconds, runs_hook=not is_under_way)
        self._stops[name] = _Stop(asyncio.create_task(stop), now + seconds)

    async def _stop(self, container: Object, seconds: float, *, runs_hook: bool) -> None:
        """Returns when the signals are sent; the shim reports the end of the container."""
        shim, name = self._sandbox.shim, container["name"]
        end = time.monotonic() + seconds
        try:
            hook = (container.get("lifecycle") or {}).get("preStop")
            if hook and runs_hook and seconds > 0:
                result = await run_hook(shim, container, hook, host=self._sandbox.ip, seconds=seconds)
                if not result.passed:
                    message = messages.pre_stop_failed(result.message)
                    self._sandbox.event(messages.REASON_FAILED_PRE_STOP_HOOK, message, container=name, kind="Warning")
                end = max(end, time.monotonic() + MINIMUM_SECONDS)
            if seconds > 0:
                await _send_signal(shim, name, _stop_signal(container))
                await asyncio.sleep(max(0.0, end - time.monotonic()))
            await _send_signal(shim, name, signal.SIGKILL)
        except ShimNotRunning:
            return

    def forget(self, name: str) -> None:
        """The container is started again: a kill of the earlier attempt must not hit the new one."""
        if running := self._stops.pop(name, None):
            running.task.cancel()

    async def close(self) -> None:
        for stop in self._stops.values():
            stop.task.cancel()
        await asyncio.gather(*(stop.task for stop in self._stops.values()), return_exceptions=True)


def _seconds_left(pod: Object) -> float:
    """What is left of the grace period; before a deletion, all of it."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp"):
        granted = metadata.get("deletionGracePeriodSeconds")
        if granted == 0:
            return 0.0
        left = parse_rfc3339(metadata["deletionTimestamp"]).timestamp() - time.time()
        # A clock that was set back must not extend the grace period.
        return max(1.0, left if granted is None else min(left, float(granted)))
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_SECONDS if grace is None else float(grace)


async def _send_signal(shim: ShimClient, container: str, number: int) -> None:
    """Again after an error: no open files are left, or the shim does not reply for a while."""
    while True:
        try:
            return await shim.signal(container, number)
        except ShimNotRunning:
            raise
        except Exception as error:
            log.warning(
                "signal not sent: pod=%s container=%s error=%r",
                shim.pod.name,
                container,
                str(error),
                exc_info=not isinstance(error, (YardError, OSError)),
            )
            if isinstance(error, ShimRequestError):
                return None
        await asyncio.sleep(_RETRY_SECONDS)


def _stop_signal(container: Object) -> int:
    name = (container.get("lifecycle") or {}).get("stopSignal")
    return int(getattr(signal, name, signal.SIGTERM)) if name else int(signal.SIGTERM)


def kill_leftovers(uid: str) -> None:
    """Kill what a killed shim without pid namespaces leaves behind: processes that carry the pod's uid."""
    mark = f"{POD_UID_VARIABLE}={uid}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
