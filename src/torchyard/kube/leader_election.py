"""Leader election through a Lease, as in client-go: of several replicas of a process, one is active.

The age of a lease counts from when this process saw it change, not from its timestamps, because the clocks of two
machines may differ.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import LEASES
from torchyard.api.objects import Object
from torchyard.kube.client import Client

log = logging.getLogger(__name__)


class LeaseLost(YardError):
    """Another process is the leader, or the lease was not renewed in time."""

    code = "LeaseLost"


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """Timing, in seconds.

    A leader that has not renewed for `duration` is replaced; it stops by itself after the shorter `deadline`. A leader
    renews every `renew` seconds. After a failure, and while waiting for the lease, the next attempt is after `retry`.
    """

    duration: float = 4.0
    deadline: float = 3.3
    renew: float = 0.8
    retry: float = 0.4


DEFAULT_CONFIG = LeaderElectionConfig()


class LeaderElector:
    """`run(lead)` runs `lead` while the lease is held and releases it at the end. `lead` may run several times."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        config: LeaderElectionConfig = DEFAULT_CONFIG,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._config, self._clock = client, config, clock
        self._name, self._namespace, self.identity = name, namespace, identity
        self.leader = ""
        self._held: Object | None = None  # the lease as last written by this process
        self._observed: tuple[str, float] = ("", 0.0)  # resourceVersion of the lease, and when it was first observed

    @property
    def is_leader(self) -> bool:
        return self.leader == self.identity

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run until cancelled, or until `lead` returns. After losing the lease, wait for it again."""
        while True:
            try:
                await self._lead_once(lead)
            except LeaseLost as error:
                log.warning("leadership lost, waiting for the lease: error=%s", error)
            else:
                return

    async def _lead_once(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self._acquire()
        log.info("became leader: identity=%s lease=%s/%s", self.identity, self._namespace, self._name)
        work, renewal = asyncio.create_task(lead()), asyncio.create_task(self._renew())
        try:
            await asyncio.wait((work, renewal), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, renewal):
                task.cancel()
            await asyncio.wait((work, renewal))
            # `lead` has ended; only now may another process start.
            if self.is_leader:
                await self._release()
        for task in (renewal, work):
            if not task.cancelled():
                task.result()

    async def _acquire(self) -> None:
        while True:
            try:
                if await self._acquire_or_renew():
                    return
            except YardError as error:
                log.warning("cannot acquire lease: lease=%s/%s error=%s", self._namespace, self._name, error)
            await asyncio.sleep(self._config.retry)

    async def _renew(self) -> None:
        renewed, pause = self._clock(), self._config.renew
        while True:
            await asyncio.sleep(pause)
            left = self._config.deadline - (self._clock() - renewed)
            reason = ""
            try:
                async with asyncio.timeout(max(left, 0.001)):
                    held = await self._acquire_or_renew()
            except (YardError, TimeoutError) as error:
                held, reason = False, str(error) or "no response in time"
                if left > self._config.retry:
                    pause = self._config.retry
                    continue
            if not held:
                self.leader = "" if self.is_leader else self.leader
                reason = reason or f"{self.leader or 'another process'} holds it"
                raise LeaseLost(f"the lease {self._namespace}/{self._name} is lost: {reason}")
            renewed, pause = self._clock(), self._config.renew

    async def _acquire_or_renew(self) -> bool:
        """Renew the lease, or acquire it if it is free; return False while another process holds it."""
        # Usually no other process has written the lease since, so it need not be read first.
        if self._held is not None and await self._write(self._held, {}):
            return True
        lease = await self._client.find(LEASES, self._name, self._namespace)
        if lease is None:
            return await self._write(None, {"leaseTransitions": 0, "acquireTime": _now()})
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder == self.identity:
            return await self._write(lease, {})
        version, since = self._observed
        if lease["metadata"]["resourceVersion"] != version:
            since = self._clock()
            self._observed = (lease["metadata"]["resourceVersion"], since)
        # Respect the duration that the holder wrote, even if it is longer than ours.
        duration = max(self._config.duration, float(spec.get("leaseDurationSeconds") or 0))
        if holder and self._clock() - since < duration:
            if holder != self.leader:
                log.info("waiting for the lease: holder=%s", holder)
            self.leader = holder
            return False
        transitions = (spec.get("leaseTransitions") or 0) + 1
        return await self._write(lease, {"leaseTransitions": transitions, "acquireTime": _now()})

    async def _write(self, lease: Object | None, changes: Object) -> bool:
        old_spec = (lease or {}).get("spec") or {}
        spec = {
            **old_spec,
            **changes,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._config.duration)),
            "renewTime": _now(),
        }
        try:
            if lease is None:
                new_lease = {"metadata": {"name": self._name}, "spec": spec}
                self._held = await self._client.create(LEASES, new_lease, self._namespace)
            else:
                self._held = await self._client.update(LEASES, {**lease, "spec": spec})
        except StatusError as error:
            self._held = None
            if error.status not in (404, 409):
                raise
            return False  # another process was faster
        self.leader = self.identity
        return True

    async def _release(self) -> None:
        """Release the lease, so that the next leader need not wait for it to expire."""
        self.leader, self._held = "", None
        try:
            lease = await self._client.find(LEASES, self._name, self._namespace)
            if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                await self._client.update(LEASES, {**lease, "spec": spec})
        except YardError as error:
            log.warning("cannot release lease: lease=%s/%s error=%s", self._namespace, self._name, error)


def _now() -> str:
    """Return the time as a MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
