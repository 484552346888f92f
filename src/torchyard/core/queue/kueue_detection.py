"""On a cluster: whether a Kueue is there, and who looks after our jobs' place in its queues. Objects in, mode out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.queue import names

_WEBHOOK = "mpytorchjob.kb.io"
EXTERNAL = f"{pytorchjob.KIND}.{pytorchjob.VERSION}.{pytorchjob.GROUP}"


class IntegrationMode(Enum):
    NONE = "none"  # no queues on this cluster
    BUILT_IN = "built-in"  # Kueue's own integration makes the workloads; we honour suspend
    EXTERNAL = "external"  # we make the workloads, and Kueue admits them


@dataclass(frozen=True)
class KueueIntegration:
    mode: IntegrationMode
    version: str  # of the API to speak; empty where there is none
    reasons: tuple[str, ...]


def detect_kueue(
    groups: Iterable[Object], webhooks: Iterable[Object], configuration: Object | None, *, deployed: bool = True
) -> KueueIntegration:
    """`groups`: the cluster's API groups; `webhooks`: its MutatingWebhookConfigurations; `configuration`: Kueue's own,
    where it may be read; `deployed`: whether a manager runs (CRDs without one admit nothing)."""
    group = next((one for one in groups if one.get("name") == names.GROUP), None)
    if group is None:
        return KueueIntegration(IntegrationMode.NONE, "", (f"the group {names.GROUP} is not served",))
    served = [one["version"] for one in group.get("versions") or ()]
    version = names.STORED if names.STORED in served else names.OLD if names.OLD in served else ""
    if not version:
        reason = f"{names.GROUP} is served in {', '.join(served)}, which we do not speak"
        return KueueIntegration(IntegrationMode.NONE, "", (reason,))
    said = [f"{names.GROUP}/{version} is served"]
    if not deployed:
        said.append("no Kueue manager runs: its kinds alone admit nothing")
        return KueueIntegration(IntegrationMode.NONE, version, tuple(said))
    hooks = {hook.get("name") for one in webhooks for hook in one.get("webhooks") or ()}
    if _WEBHOOK in hooks:
        said.append(f"the webhook {_WEBHOOK} is there: Kueue's own integration for {pytorchjob.KIND} is on")
        return KueueIntegration(IntegrationMode.BUILT_IN, version, tuple(said))
    said.append(f"the webhook {_WEBHOOK} is not there: Kueue leaves {pytorchjob.KIND} to us")
    listed = ((configuration or {}).get("integrations") or {}).get("externalFrameworks")
    if configuration is None:
        said.append(f"its configuration cannot be read; ask the administrator to list {EXTERNAL} there")
    elif EXTERNAL not in (listed or ()):
        said.append(f"list {EXTERNAL} under integrations.externalFrameworks, or pods may be queued a second time")
    return KueueIntegration(IntegrationMode.EXTERNAL, version, tuple(said))
