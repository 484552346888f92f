"""A Deployment with its ReplicaSets: which is new, which are old, and the numbers that its strategy allows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchyard.api.checks import percent_value
from torchyard.api.objects import Object
from torchyard.api.workload import labels
from torchyard.api.workload.templates import same_template

_NO_LIMIT = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_INT64_DIGITS = 19


def scaled_value(value: int | str, total: int, *, round_up: bool) -> int:
    """`3`, or a percentage of `total`."""
    if isinstance(value, int):
        return value
    part = percent_value(value) * total / 100
    return math.ceil(part) if round_up else math.floor(part)


@dataclass(frozen=True, slots=True)
class DeploymentView:
    deployment: Object
    replica_sets: tuple[Object, ...]  # that it controls
    pods: tuple[Object, ...]  # of the old ReplicaSets; only the Recreate strategy needs them
    now: datetime

    @property
    def name(self) -> str:
        return str(self.deployment["metadata"]["name"])

    @property
    def spec(self) -> Object:
        spec: Object = self.deployment["spec"]
        return spec

    @property
    def status(self) -> Object:
        return self.deployment.get("status") or {}

    @property
    def replicas(self) -> int:
        return int(self.spec["replicas"])

    @property
    def is_rolling(self) -> bool:
        return bool(self.spec["strategy"]["type"] == "RollingUpdate")

    @property
    def has_progress_deadline(self) -> bool:
        return self.spec.get("progressDeadlineSeconds") not in (None, _NO_LIMIT)

    @property
    def history_limit(self) -> int | None:
        limit = self.spec.get("revisionHistoryLimit")
        return None if limit in (None, _NO_LIMIT) else limit

    @property
    def max_surge(self) -> int:
        return self._fenceposts()[0] if self.is_rolling else 0

    @property
    def max_unavailable(self) -> int:
        if not self.is_rolling or not self.replicas:
            return 0
        return min(self._fenceposts()[1], self.replicas)

    def _fenceposts(self) -> tuple[int, int]:
        rolling = self.spec["strategy"].get("rollingUpdate") or {}
        surge = scaled_value(rolling.get("maxSurge", 0), self.replicas, round_up=True)
        unavailable = scaled_value(rolling.get("maxUnavailable", 0), self.replicas, round_up=False)
        # Percentages may both round to zero, and then nothing could ever change.
        return surge, unavailable if surge or unavailable else 1

    def new_replica_set(self) -> Object | None:
        """The oldest ReplicaSet with the Deployment's template."""
        wanted = without_hash(self.spec["template"])
        for replica_set in sorted(self.replica_sets, key=by_creation):
            if same_template(without_hash(replica_set["spec"]["template"]), wanted):
                return replica_set
        return None

    def old_replica_sets(self, new: Object | None) -> list[Object]:
        uid = new["metadata"]["uid"] if new else None
        return [replica_set for replica_set in self.replica_sets if replica_set["metadata"]["uid"] != uid]


def without_hash(template: Object) -> Object:
    metadata = template.get("metadata") or {}
    own = {key: value for key, value in (metadata.get("labels") or {}).items() if key != labels.POD_TEMPLATE_HASH}
    rest = {key: value for key, value in metadata.items() if key not in ("labels", "creationTimestamp")}
    return {**template, "metadata": {**rest, "labels": own}}


def by_creation(replica_set: Object) -> tuple[str, str]:
    """The sort key of ReplicaSets, oldest first."""
    metadata = replica_set["metadata"]
    return metadata.get("creationTimestamp") or "", metadata["name"]


def size(replica_set: Object | None) -> int:
    return int(replica_set["spec"]["replicas"]) if replica_set else 0


def total_size(replica_sets: Iterable[Object | None]) -> int:
    return sum(map(size, replica_sets))


def count(replica_set: Object | None, field: str) -> int:
    """A number of its status."""
    return int(((replica_set or {}).get("status") or {}).get(field) or 0)


def active(replica_sets: Iterable[Object | None]) -> list[Object]:
    """The ReplicaSets that should have pods."""
    return [replica_set for replica_set in replica_sets if replica_set is not None and size(replica_set) > 0]


def annotation(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))


def number(obj: Object, name: str) -> int | None:
    """A number in an annotation; None if it is not one."""
    text = annotation(obj, name)
    if not (text.isascii() and text.isdigit() and len(text) <= _INT64_DIGITS):
        return None
    return int(text) if int(text) <= _MAX_INT64 else None


def revision(replica_set: Object) -> int:
    return number(replica_set, labels.REVISION) or 0


def with_annotations(obj: Object, **changes: Any) -> Object:
    """A copy of an object with other annotations and spec fields (`annotations=`, `spec=`)."""
    metadata = {**obj["metadata"], "annotations": changes["annotations"]}
    return {**obj, "metadata": metadata, "spec": {**obj["spec"], **changes.get("spec", {})}}
