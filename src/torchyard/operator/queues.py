"""Jobs in the queues of a real Kueue: which way is theirs here, and our part of it where one is left to us.

Kueue admits; nothing here does. Every copy looks, so that every copy's webhook knows; only the leader acts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime

import yaml

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import CONFIG_MAPS
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.controllers.queue.external import ExternalIntegration
from torchyard.core.queue.kueue_detection import IntegrationMode, KueueIntegration, detect_kueue
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory
from torchyard.operator.certificates import MUTATING
from torchyard.operator.checks import check_permissions
from torchyard.operator.permissions import KUEUE_CONFIGURATION, KUEUE_DETECTION, queue_permissions
from torchyard.operator.tasks import run_until_first_exit

log = logging.getLogger(__name__)

LOOK_AGAIN = 60.0
_CONFIGURATION_KEY = "controller_manager_config.yaml"
NOTHING = KueueIntegration(IntegrationMode.NONE, "", ("nobody has looked yet",))


async def look(client: Client) -> KueueIntegration:
    """Who brings PyTorchJobs into the queues of this cluster."""
    groups = await _groups(client)
    return await _look_closer(client, groups) if _are_queues_served(groups) else detect_kueue(groups, (), None)


async def _groups(client: Client) -> list[Object]:
    found: list[Object] = (await client.raw("GET", "/apis")).get("groups") or []
    return found


def _are_queues_served(groups: Iterable[Object]) -> bool:
    return any(one["name"] == names.GROUP for one in groups)


async def _look_closer(client: Client, groups: Iterable[Object]) -> KueueIntegration:
    webhooks = (await client.list(MUTATING)).items
    kueues = [one for one in webhooks if "kueue" in one["metadata"]["name"]]
    return detect_kueue(groups, webhooks, await _configuration(client, kueues), deployed=bool(kueues))


async def _configuration(client: Client, webhooks: Iterable[Object]) -> Object | None:
    """Kueue's own settings, from the namespace that its webhooks lead to; None where they may not be read."""
    places = {
        (hook["clientConfig"].get("service") or {}).get("namespace", "")
        for one in webhooks
        for hook in one.get("webhooks") or ()
    }
    for place in sorted(places - {""}):
        try:
            found = await client.find(CONFIG_MAPS, KUEUE_CONFIGURATION, place)
        except StatusError as error:
            if error.status != 403:
                raise
            continue
        if found is not None:
            try:
                read = yaml.safe_load((found.get("data") or {}).get(_CONFIGURATION_KEY) or "")
            except yaml.YAMLError:
                continue
            return read if isinstance(read, dict) else {}
    return None


class Queues:
    """`run` on every copy keeps `found` current; `integrate`, on the leader, does our part while there is one."""

    def __init__(
        self,
        client: Client,
        *,
        namespaces: tuple[str, ...],
        clock: Callable[[], datetime],
        changed: Callable[[str], None],
    ) -> None:
        self._client, self._namespaces, self._clock, self._tell = client, namespaces or ("",), clock, changed
        self.found = NOTHING
        self._changed = asyncio.Condition()

    @property
    def are_ours(self) -> bool:
        return self.found.mode is IntegrationMode.EXTERNAL

    async def run(self) -> None:
        while True:
            try:
                found = await self._look()
            except YardError as error:
                log.warning("whether there are queues could not be seen: %s", error)
            else:
                await self._take(found)
            await asyncio.sleep(LOOK_AGAIN)

    async def integrate(self) -> None:
        while True:
            await self._until(ours=True)
            informers = [InformerFactory(self._client, namespace=one) for one in self._namespaces]
            integrations = [ExternalIntegration(self._client, one, clock=self._clock) for one in informers]
            await run_until_first_exit(
                self._until(ours=False), *(one.run() for one in informers), *(one.run() for one in integrations)
            )

    async def _look(self) -> KueueIntegration:
        """As `look`, but asks for nothing that it may not, and says what it may not."""
        groups = await _groups(self._client)
        if not _are_queues_served(groups):
            return detect_kueue(groups, (), None)
        try:
            await check_permissions(self._client, KUEUE_DETECTION)
            found = await _look_closer(self._client, groups)
            if found.mode is not IntegrationMode.EXTERNAL:
                return found
            await check_permissions(self._client, queue_permissions())
        except YardError as error:
            return KueueIntegration(IntegrationMode.NONE, "", (f"the group {names.GROUP} is served, but {error}",))
        if found.version != names.STORED:
            said = f"{names.GROUP}/{names.STORED} is not served: jobs get into queues by Kueue's own integration only"
            return KueueIntegration(IntegrationMode.NONE, found.version, (*found.reasons, said))
        return found

    async def _take(self, found: KueueIntegration) -> None:
        if found == self.found:
            return
        log.info("queues: %s (%s)", found.mode.value, "; ".join(found.reasons))
        async with self._changed:
            self.found = found
            self._changed.notify_all()
        self._tell(found.mode.value)

    async def _until(self, *, ours: bool) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.are_ours is ours)
