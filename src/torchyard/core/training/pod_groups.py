"""PodGroups of gang schedulers: the names by which pods belong to them, and the resources of a group."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.quantity import Quantity

VOLCANO_API, SCHEDULER_PLUGINS_API = "scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"  # an annotation of pods
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


def total_requests(pods: Iterable[tuple[Object, int]]) -> dict[str, str]:
    """The requests of pods, given as specs and counts."""
    total: dict[str, Quantity] = {}
    for spec, count in pods:
        for name, amount in _pod_requests(spec).items():
            before = total.get(name)
            nano = amount.nano * count + (before.nano if before else 0)
            total[name] = Quantity(nano, (before or amount).format)
    return {name: str(total[name]) for name in sorted(total)}


def _pod_requests(spec: Object) -> dict[str, Quantity]:
    """The requests of a pod: of its containers together, or of its largest init container."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            parsed, before = quantity.parse(amount), total.get(name)
            total[name] = Quantity(parsed.nano + (before.nano if before else 0), (before or parsed).format)
    for container in spec.get("initContainers") or ():
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            parsed, before = quantity.parse(amount), total.get(name)
            if before is None or before.nano < parsed.nano:
                total[name] = parsed
    return total
