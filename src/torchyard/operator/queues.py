"""PyTorchJobs and the cluster's own Kueue: finds out which side creates their Workloads, and creates them if we do.

Kueue admits. Every replica of the operator checks, because its webhook needs the result; only the leader creates.
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
from torchyard.api.queue import configuration_messages, names
from torchyard.controllers.queue.external import ExternalIntegration
from torchyard.core.queue.kueue_detection import IntegrationMode, KueueIntegration, detect_kueue
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory
from torchyard.operator.certificates import MUTATING
from torchyard.operator.checks import check_permissions
from torchyard.operator.permissions import KUEUE_CONFIGURATION, KUEUE_DETECTION, queue_permissions
from torchyard.operator.tasks import run_until_first_exit

log = logging.getLogger(__name__)

CHECK_INTERVAL = 60.0  # seconds
_USUAL_NAMESPACE = "kueue-system"
_CONFIGURATION_KEY = "controller_manager_config.yaml"
NOT_CHECKED = KueueIntegration(IntegrationMode.NONE, "", (configuration_messages.KUEUE_NOT_CHECKED,))


async def inspect_kueue(client: Client) -> KueueIntegration:
    """How PyTorchJobs get into the queues of this cluster."""
    groups = await _api_groups(client)
    return await _inspect_webhooks(client, groups) if _is_kueue_served(groups) else detect_kueue(groups, (), None)


async def _api_groups(client: Client) -> list[Object]:
    groups: list[Object] = (await client.raw("GET", "/apis")).get("groups") or []
    return groups


def _is_kueue_served(groups: Iterable[Object]) -> bool:
    return any(group["name"] == names.GROUP for group in groups)


async def _inspect_webhooks(client: Client, groups: Iterable[Object]) -> KueueIntegration:
    webhooks = (await client.list(MUTATING)).items
    kueue_webhooks = [obj for obj in webhooks if "kueue" in obj["metadata"]["name"]]
    configuration = await _kueue_configuration(client, kueue_webhooks)
    return detect_kueue(groups, webhooks, configuration, deployed=bool(kueue_webhooks))


async def _kueue_configuration(client: Client, webhooks: Iterable[Object]) -> Object | None:
    """Kueue's configuration, from the namespace of the service behind its webhooks; None if it cannot be read.

    Webhooks that have an address instead of a service do not tell the namespace; then it is the usual one.
    """
    namespaces = {
        (webhook["clientConfig"].get("service") or {}).get("namespace", "")
        for obj in webhooks
        for webhook in obj.get("webhooks") or ()
    }
    for namespace in sorted(namespaces - {""}) or [_USUAL_NAMESPACE]:
        try:
            config_map = await client.find(CONFIG_MAPS, KUEUE_CONFIGURATION, namespace)
        except StatusError as error:
            if error.status != 403:
                raise
            continue
        if config_map is not None:
            try:
                configuration = yaml.safe_load((config_map.get("data") or {}).get(_CONFIGURATION_KEY) or "")
            except yaml.YAMLError:
                continue
            return configuration if isinstance(configuration, dict) else {}
    return None


class KueueWatcher:
    """`run` on every replica keeps `integration` current; `integrate`, on the leader, creates workloads if needed."""

    def __init__(
        self,
        client: Client,
        *,
        namespaces: tuple[str, ...],
        clock: Callable[[], datetime],
        changed: Callable[[str], None],
    ) -> None:
        self._client, self._namespaces, self._clock, self._notify = client, namespaces or ("",), clock, changed
        self.integration = NOT_CHECKED
        self._changed = asyncio.Condition()

    @property
    def creates_workloads(self) -> bool:
        return self.integration.mode is IntegrationMode.EXTERNAL

    async def run(self) -> None:
        while True:
            try:
                integration = await self._inspect()
            except YardError as error:
                log.warning("kueue not checked: error=%s", error)
            else:
                await self._set(integration)
            await asyncio.sleep(CHECK_INTERVAL)

    async def integrate(self) -> None:
        while True:
            await self._wait_until(creates_workloads=True)
            factories = [
                InformerFactory(self._client, namespace=namespace, packed=True) for namespace in self._namespaces
            ]
            integrations = [ExternalIntegration(self._client, factory, clock=self._clock) for factory in factories]
            await run_until_first_exit(
                self._wait_until(creates_workloads=False),
                *(factory.run() for factory in factories),
                *(integration.run() for integration in integrations),
            )

    async def _inspect(self) -> KueueIntegration:
        """As `inspect_kueue`, but only with the permissions it has; a missing one is the reason for no integration."""
        groups = await _api_groups(self._client)
        if not _is_kueue_served(groups):
            return detect_kueue(groups, (), None)
        try:
            await check_permissions(self._client, KUEUE_DETECTION)
            integration = await _inspect_webhooks(self._client, groups)
            if integration.mode is not IntegrationMode.EXTERNAL:
                return integration
            await check_permissions(self._client, queue_permissions())
        except YardError as error:
            return KueueIntegration(IntegrationMode.NONE, "", (configuration_messages.kueue_not_usable(error),))
        if integration.version != names.STORED:
            reasons = (*integration.reasons, configuration_messages.kueue_version_needed())
            return KueueIntegration(IntegrationMode.NONE, integration.version, reasons)
        return integration

    async def _set(self, integration: KueueIntegration) -> None:
        if integration == self.integration:
            return
        log.info("kueue integration: mode=%s reasons=%s", integration.mode.value, "; ".join(integration.reasons))
        async with self._changed:
            self.integration = integration
            self._changed.notify_all()
        self._notify(integration.mode.value)

    async def _wait_until(self, *, creates_workloads: bool) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.creates_workloads is creates_workloads)
