"""The status of a ResourceQuota: its limits, and the namespace's usage of each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from torchyard.api.objects import Object
from torchyard.api.pod.totals import Amounts, add
from torchyard.api.quantity import ZERO
from torchyard.api.quota.usage import total_usage

Resource = tuple[str, str]  # group, plural

_BY_NAME = {
    "configmaps": "configmaps",
    "replicationcontrollers": "replicationcontrollers",
    "resourcequotas": "resourcequotas",
    "secrets": "secrets",
    "services": "services",
    "services.loadbalancers": "services",
    "services.nodeports": "services",
    "persistentvolumeclaims": "persistentvolumeclaims",
    "requests.storage": "persistentvolumeclaims",
}
_STORAGE_CLASS_INFIX = ".storageclass.storage.k8s.io/"


def counted_resources(quota: Object) -> set[Resource]:
    """The resources whose objects count towards a quota."""
    return {_resource(name) for name in (quota.get("spec") or {}).get("hard") or {}}


def _resource(limit: str) -> Resource:
    if limit.startswith("count/"):
        plural, _, group = limit.removeprefix("count/").partition(".")
        return group, plural
    if _STORAGE_CLASS_INFIX in limit:
        return "", "persistentvolumeclaims"
    return "", _BY_NAME.get(limit, "pods")


def quota_status(quota: Object, objects: Mapping[Resource, Iterable[Object]], now: datetime) -> Object:
    """The status of a quota for these objects of its namespace."""
    spec = quota.get("spec") or {}
    hard: dict[str, str] = spec.get("hard") or {}
    used: Amounts = dict.fromkeys(hard, ZERO)
    for (group, plural), listed in objects.items():
        cost = total_usage(spec, group, plural, listed, now=now)
        add(used, {name: amount for name, amount in cost.items() if name in hard})
    return {"hard": dict(hard), "used": {name: str(amount) for name, amount in used.items()}}
