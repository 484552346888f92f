"""Whether a cluster has Kueue, and whether it or we create the Workloads of PyTorchJobs. Objects in, mode out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.queue import configuration_messages, names

_WEBHOOK = "mpytorchjob.kb.io"
EXTERNAL = f"{pytorchjob.KIND}.{pytorchjob.VERSION}.{pytorchjob.GROUP}"


class IntegrationMode(Enum):
    NONE = "none"  # this cluster has no queues
    BUILT_IN = "built-in"  # Kueue's own integration creates the workloads; we only honour suspend
    EXTERNAL = "external"  # we create the workloads, and Kueue admits them


@dataclass(frozen=True)
class KueueIntegration:
    mode: IntegrationMode
    version: str  # of the API to use; empty if there is none
    reasons: tuple[str, ...]


def detect_kueue(
    groups: Iterable[Object], webhooks: Iterable[Object], configuration: Object | None, *, deployed: bool = True
) -> KueueIntegration:
    """Find out how PyTorchJobs get into the queues of a cluster.

    `groups`: its API groups. `webhooks`: its MutatingWebhookConfigurations. `configuration`: Kueue's own, None if it
    cannot be read. `deployed`: whether a Kueue manager runs.
    """
    group = next((group for group in groups if group.get("name") == names.GROUP), None)
    if group is None:
        return KueueIntegration(IntegrationMode.NONE, "", (configuration_messages.kueue_not_served(),))
    served = [entry["version"] for entry in group.get("versions") or ()]
    version = names.STORED if names.STORED in served else names.OLD if names.OLD in served else ""
    if not version:
        return KueueIntegration(IntegrationMode.NONE, "", (configuration_messages.kueue_versions_unsupported(served),))
    reasons = [configuration_messages.kueue_served(version)]
    if not deployed:
        reasons.append(configuration_messages.NO_KUEUE_MANAGER)
        return KueueIntegration(IntegrationMode.NONE, version, tuple(reasons))
    names_of_webhooks = {webhook.get("name") for obj in webhooks for webhook in obj.get("webhooks") or ()}
    if _WEBHOOK in names_of_webhooks:
        reasons.append(configuration_messages.webhook_found(_WEBHOOK, pytorchjob.KIND))
        return KueueIntegration(IntegrationMode.BUILT_IN, version, tuple(reasons))
    reasons.append(configuration_messages.webhook_not_found(_WEBHOOK, pytorchjob.KIND))
    listed = ((configuration or {}).get("integrations") or {}).get("externalFrameworks")
    if configuration is None:
        reasons.append(configuration_messages.configuration_not_readable(EXTERNAL))
    elif EXTERNAL not in (listed or ()):
        reasons.append(configuration_messages.framework_not_listed(EXTERNAL))
    return KueueIntegration(IntegrationMode.EXTERNAL, version, tuple(reasons))
