"""Whether a cluster has Kueue, and whether it or we create the Workloads of PyTorchJobs. Objects in, mode out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.queue import configuration_messages, names

_WEBHOOK = "mpytorchjob.kb.io"
_FRAMEWORK = "kubeflow.org/pytorchjob"
EXTERNAL = f"{pytorchjob.KIND}.{pytorchjob.VERSION}.{pytorchjob.GROUP}"
# By whether Kueue's built-in integration is on.
_CONFIGURATION_TEXTS = {
    True: configuration_messages.framework_on(_FRAMEWORK, pytorchjob.KIND),
    False: configuration_messages.framework_off(_FRAMEWORK, pytorchjob.KIND),
}
_WEBHOOK_TEXTS = {
    True: configuration_messages.webhook_found(_WEBHOOK, pytorchjob.KIND),
    False: configuration_messages.webhook_not_found(_WEBHOOK, pytorchjob.KIND),
}


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
    The configuration decides: Kueue's installation has the webhooks of all integrations, also of those that are off.
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
    integrations = (configuration or {}).get("integrations") or {}
    if configuration is not None:
        is_built_in, texts = _FRAMEWORK in (integrations.get("frameworks") or ()), _CONFIGURATION_TEXTS
    else:
        hooks = {webhook.get("name") for obj in webhooks for webhook in obj.get("webhooks") or ()}
        is_built_in, texts = _WEBHOOK in hooks, _WEBHOOK_TEXTS
    reasons.append(texts[is_built_in])
    if is_built_in:
        return KueueIntegration(IntegrationMode.BUILT_IN, version, tuple(reasons))
    if configuration is None:
        reasons.append(configuration_messages.configuration_not_readable(EXTERNAL))
    elif EXTERNAL not in (integrations.get("externalFrameworks") or ()):
        reasons.append(configuration_messages.framework_not_listed(EXTERNAL))
    return KueueIntegration(IntegrationMode.EXTERNAL, version, tuple(reasons))
