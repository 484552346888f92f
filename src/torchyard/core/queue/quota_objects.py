"""The objects that define quota: ClusterQueues, ResourceFlavors, Cohorts and AdmissionChecks, parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torchyard.api.conditions import find
from torchyard.api.objects import Object
from torchyard.api.queue import names, queue_messages
from torchyard.core.queue.flavors import Flavor
from torchyard.core.queue.hierarchy import QuotaHierarchy, build_hierarchy
from torchyard.core.queue.specs import ClusterQueueSpec, CohortSpec
from torchyard.core.queue.workload_info import Key

_T = TypeVar("_T")


class QuotaObjects:
    """`has_changed` says whether `build` would give another hierarchy than before."""

    def __init__(self, *, is_fair: bool = False, usage_of: Callable[[Key], float] | None = None) -> None:
        """`is_fair`: whether cohorts share by weight. `usage_of`: see `build_hierarchy`."""
        self._is_fair, self._usage_of = is_fair, usage_of
        self.flavors: dict[str, Flavor] = {}
        self._cluster_queues: dict[str, ClusterQueueSpec] = {}
        self._cohorts: dict[str, CohortSpec] = {}
        self._checks: dict[str, bool] = {}
        self.has_changed = True

    def put_cluster_queue(self, obj: Object) -> None:
        spec = ClusterQueueSpec.parse(obj, is_fair=self._is_fair)
        self._put(self._cluster_queues, spec.name, spec)

    def cluster_queue(self, name: str) -> ClusterQueueSpec | None:
        return self._cluster_queues.get(name)

    def put_flavor(self, obj: Object) -> None:
        flavor = Flavor.parse(obj)
        self._put(self.flavors, flavor.name, flavor)

    def put_cohort(self, obj: Object) -> None:
        self._put(self._cohorts, obj["metadata"]["name"], CohortSpec.parse(obj.get("spec") or {}))

    def put_check(self, obj: Object) -> None:
        active = find((obj.get("status") or {}).get("conditions") or (), queue_messages.ACTIVE)
        self._put(self._checks, obj["metadata"]["name"], active is None or active["status"] == "True")

    def delete(self, kind: str, name: str) -> None:
        objects: dict[str, dict[str, Any]] = {
            names.CLUSTER_QUEUE.kind: self._cluster_queues,
            names.FLAVOR.kind: self.flavors,
            names.COHORT.kind: self._cohorts,
            names.CHECK.kind: self._checks,
        }
        if objects[kind].pop(name, None) is not None:
            self.has_changed = True

    def build(self) -> QuotaHierarchy:
        self.has_changed = False
        return build_hierarchy(
            self._cluster_queues,
            self.flavors,
            self._cohorts,
            self._checks,
            is_fair=self._is_fair,
            usage_of=self._usage_of,
        )

    def _put(self, objects: dict[str, _T], name: str, value: _T) -> None:
        if objects.get(name) != value:
            objects[name] = value
            self.has_changed = True
