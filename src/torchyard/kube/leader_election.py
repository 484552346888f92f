"""Election by a Lease: of several copies of a process, one acts. Follows client-go's leader election.

How old a lease is, is measured by when this process saw it change, never by the timestamps in it: the clocks of two
machines need not agree.
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
    """Somebody else leads now, or the lease could not be renewed in time."""

    code = "LeaseLost"


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """A leader that is not heard of for `duration` is replaced; it stops by itself after the shorter `deadline`.

    A leader writes every `renew` seconds; who failed to, or waits for his turn, tries again after `retry`.
    """

    duration: float = 4.0
    deadline: float = 3.3
    renew: float = 0.8
    retry: float = 0.4


DEFAULT_CONFIG = LeaderElectionConfig()


class LeaderElector:
    """`run(lead)`: runs `lead` whenever the lease is held, gives it back at the end. `lead` may be begun again."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        terms: LeaderElectionConfig = DEFAULT_CONFIG,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._terms, self._clock = client, terms, clock
        self._name, self._namespace, self.identity = name, namespace, identity
        self.leader = ""
        self._held: Object | None = None  # the lease as we last wrote it
        self._seen: tuple[str, float] = ("", 0.0)  # the lease's revision, and when it was first seen

    @property
    def is_leader(self) -> bool:
        return self.leader == self.identity

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Until cancelled, or until `lead` ends. A lost lease only means waiting for the next turn."""
        while True:
            try:
                await self._lead_once(lead)
            except LeaseLost as error:
                log.warning("%s; nothing is done until it is won again", error)
            else:
                return

    async def _lead_once(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self._acquire()
        log.info("%s leads now (lease %s/%s)", self.identity, self._namespace, self._name)
        work, transform = asyncio.create_task(lead()), asyncio.create_task(self._keep())
        try:
            await asyncio.wait((work, transform), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, transform):
                task.cancel()
            await asyncio.wait((work, transform))
            # Nothing acts any more; only now may somebody else begin.
            if self.is_leader:
                await self._release()
        for task in (transform, work):
            if not task.cancelled():
                task.result()

    async def _acquire(self) -> None:
        while True:
            try:
                if await self._take():
                    return
            except YardError as error:
                log.warning("asking for the lease %s/%s: %s", self._namespace, self._name, error)
            await asyncio.sleep(self._terms.retry)

    async def _keep(self) -> None:
        renewed, pause = self._clock(), self._terms.renew
        while True:
            await asyncio.sleep(pause)
            left = self._terms.deadline - (self._clock() - renewed)
            said = ""
            try:
                async with asyncio.timeout(max(left, 0.001)):
                    held = await self._take()
            except (YardError, TimeoutError) as error:
                held, said = False, str(error) or "no answer in time"
                if left > self._terms.retry:
                    pause = self._terms.retry
                    continue
            if not held:
                self.leader = "" if self.is_leader else self.leader
                said = said or f"{self.leader or 'somebody else'} has it"
                raise LeaseLost(f"the lease {self._namespace}/{self._name} is lost: {said}")
            renewed, pause = self._clock(), self._terms.renew

    async def _take(self) -> bool:
        """Renew the lease, or take it if nobody has it; False while somebody else does."""
        # Nobody has written it since we did: then it need not be read, and that is every time but few.
        if self._held is not None and await self._write(self._held, {}):
            return True
        lease = await self._client.find(LEASES, self._name, self._namespace)
        if lease is None:
            return await self._write(None, {"leaseTransitions": 0, "acquireTime": _now()})
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder == self.identity:
            return await self._write(lease, {})
        revision, since = self._seen
        if lease["metadata"]["resourceVersion"] != revision:
            since = self._clock()
            self._seen = (lease["metadata"]["resourceVersion"], since)
        # A holder that said how long it may be silent is believed; one with longer terms is waited for.
        duration = max(self._terms.duration, float(spec.get("leaseDurationSeconds") or 0))
        if holder and self._clock() - since < duration:
            if holder != self.leader:
                log.info("%s leads; waiting", holder)
            self.leader = holder
            return False
        transitions = (spec.get("leaseTransitions") or 0) + 1
        return await self._write(lease, {"leaseTransitions": transitions, "acquireTime": _now()})

    async def _write(self, lease: Object | None, changes: Object) -> bool:
        kept = (lease or {}).get("spec") or {}
        spec = {
            **kept,
            **changes,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._terms.duration)),
            "renewTime": _now(),
        }
        try:
            if lease is None:
                made = {"metadata": {"name": self._name}, "spec": spec}
                self._held = await self._client.create(LEASES, made, self._namespace)
            else:
                self._held = await self._client.update(LEASES, {**lease, "spec": spec})
        except StatusError as error:
            self._held = None
            if error.status not in (404, 409):
                raise
            return False  # somebody else was faster
        self.leader = self.identity
        return True

    async def _release(self) -> None:
        """Let the next one begin at once instead of after the lease's duration."""
        self.leader, self._held = "", None
        try:
            lease = await self._client.find(LEASES, self._name, self._namespace)
            if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                await self._client.update(LEASES, {**lease, "spec": spec})
        except YardError as error:
            log.warning("the lease %s/%s could not be given back: %s", self._namespace, self._name, error)


def _now() -> str:
    """MicroTime, as Leases have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
