"""The input of a decision about a PyTorchJob: the job, its pods and services by replica, and the settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.pytorchjob.defaults import with_defaults
from torchyard.core.training import pods

Slot = tuple[str, int]  # replica type, index

VOLCANO = "volcano"
# The plane's own scheduler reads gangs from pod annotations; it needs no PodGroup.
EMBEDDED_GANG = "embedded"


@dataclass(frozen=True, slots=True)
class PyTorchJobSettings:
    """The operator's flags, with upstream's meanings."""

    init_image: str = "alpine:3.10"
    init_tries: int = 100
    init_pause_seconds: float = 2.0
    gang_scheduler: str = ""  # "": none; "volcano"; "embedded"; else the name of a scheduler with scheduler-plugins
    # A pod that is still there this long after its deletion is on a node that does not answer.
    lost_after_seconds: float = 30.0

    @property
    def uses_pod_groups(self) -> bool:
        return self.gang_scheduler not in ("", EMBEDDED_GANG)


@dataclass(frozen=True, slots=True)
class Restarts:
    """How many replicas were recreated, and the counted pods that may still exist."""

    count: int = 0
    pods: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: Object) -> Restarts:
        text = (job["metadata"].get("annotations") or {}).get(names.RESTARTS, "")
        try:
            read = json.loads(text) if text else {}
            return cls(int(read.get("count", 0)), tuple(str(pod) for pod in read.get("pods", ())))
        except (ValueError, TypeError, AttributeError):
            return cls()  # another client wrote the annotation: start at zero

    def text(self) -> str:
        return json.dumps({"count": self.count, "pods": list(self.pods)}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class PyTorchJobView:
    job: Object  # with defaults
    now: datetime
    pods: Mapping[Slot, Object] = field(default_factory=dict)
    services: Mapping[Slot, Object] = field(default_factory=dict)
    pod_group: Object | None = None
    autoscaler: Object | None = None

    @classmethod
    def of(
        cls,
        job: Object,
        now: datetime,
        *,
        pods: Iterable[Object] = (),
        services: Iterable[Object] = (),
        pod_group: Object | None = None,
        autoscaler: Object | None = None,
    ) -> PyTorchJobView:
        return cls(with_defaults(job), now, _by_slot(pods), _by_slot(services), pod_group, autoscaler)

    @property
    def name(self) -> str:
        return str(self.job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"].get("namespace", ""))

    @property
    def spec(self) -> Object:
        spec: Object = self.job["spec"]
        return spec

    @property
    def run_policy(self) -> Object:
        policy: Object = self.spec["runPolicy"]
        return policy

    @property
    def replicas(self) -> Mapping[str, Object]:
        """Replica specs by type, Master first."""
        specs: Mapping[str, Object] = self.spec["pytorchReplicaSpecs"]
        return specs

    @property
    def has_master(self) -> bool:
        return names.MASTER in self.replicas

    @property
    def elastic(self) -> Object | None:
        policy: Object | None = self.spec.get("elasticPolicy")
        return policy

    @property
    def total(self) -> int:
        return sum(int(spec["replicas"]) for spec in self.replicas.values())

    @property
    def restarts_whole(self) -> bool:
        return self._annotation(names.RESTART_SCOPE) == names.WHOLE_JOB

    @property
    def ranks_workers(self) -> bool:
        return self._annotation(names.WORKER_RANKS) == "true" and not self.has_master

    @property
    def waits_for_master(self) -> bool:
        return self.has_master and self._annotation(names.INIT_CONTAINER) != "off"

    def _annotation(self, name: str) -> str:
        return str((self.job["metadata"].get("annotations") or {}).get(name, ""))

    def has_slot(self, slot: Slot) -> bool:
        kind, index = slot
        return kind in self.replicas and index < int(self.replicas[kind]["replicas"])

    def pods_of(self, replica_type: str) -> list[Object]:
        return [pod for (kind, _), pod in self.pods.items() if kind == replica_type]


def _by_slot(objects: Iterable[Object]) -> dict[Slot, Object]:
    by_slot: dict[Slot, Object] = {}
    for obj in objects:
        slot = slot_of(obj)
        if slot is not None:
            by_slot[slot] = obj
    return {slot: by_slot[slot] for slot in sorted(by_slot)}


def slot_of(obj: Object) -> Slot | None:
    """The replica that an object belongs to, by its labels; None without them."""
    labels = obj["metadata"].get("labels") or {}
    index = labels.get(names.REPLICA_INDEX, "")
    kind = labels.get(names.REPLICA_TYPE, "").capitalize()
    return (kind, int(index)) if kind and index.isascii() and index.isdigit() and len(index) < 10 else None


def exit_code(pod: Object) -> int | None:
    """The exit code of the container `pytorch`, if it has ended."""
    return pods.exit_code(pod, names.CONTAINER)
