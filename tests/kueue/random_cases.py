"""Random cases: a tree of cohorts, its queues and flavors, and what happens to their workloads.

A case is a function of its seed. The names of its objects begin with a prefix of their own, so that many cases share
one server.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

_VERSION = "kueue.x-k8s.io/v1beta2"
_MAX_QUOTA = 6
_TAINT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
_GPU = "example.com/gpu"
FIRST_FAIR = 10_000  # from this seed on, with fair sharing; the thousands tell which strategies
_STRATEGIES = (
    ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
    ("LessThanOrEqualToFinalShare",),
    ("LessThanInitialShare",),
)
_WEIGHTS = (None, None, None, "0", "500m", "1", "2", "3")
# From this seed on, without fair sharing: deep trees, more StrictFIFO queues, priorities that change, and pods with
# limits, pod-level resources, init containers and overhead.
FIRST_DEEP = 20_000
FIRST_LATE = 1000  # from this seed on, workloads arrive while others still wait for the quota of evicted ones


@dataclass(frozen=True)
class Operation:
    """`verb`: create, patch, patch-status, finish or delete. `body`: the object or the merge patch."""

    verb: str
    kind: str
    name: str
    body: Object

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.name} {json.dumps(self.body, sort_keys=True)}"


@dataclass(frozen=True)
class Case:
    seed: int
    setup: tuple[Operation, ...]
    steps: tuple[Operation, ...]  # each is done when nothing changes any more
    late: frozenset[int] = frozenset()  # steps after which evicted workloads keep their quota until the next step

    @property
    def fair_sharing(self) -> tuple[str, ...] | None:
        """The preemption strategies of fair sharing, None without it."""
        if not FIRST_FAIR <= self.seed < FIRST_DEEP:
            return None
        return _STRATEGIES[(self.seed - FIRST_FAIR) // 1000 % len(_STRATEGIES)]

    @property
    def prefix(self) -> str:
        return f"r{self.seed}-"

    @property
    def namespace(self) -> str:
        return f"{self.prefix}ns"

    @property
    def digest(self) -> str:
        """Tells whether a recording is of this case or of one that an older generator made."""
        text = "\n".join(map(str, (*self.setup, *self.steps, *sorted(self.late))))
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()

    @property
    def cluster_queues(self) -> list[str]:
        return [operation.name for operation in self.setup if operation.kind == "ClusterQueue"]


def generate(seed: int) -> Case:
    return _Generator(seed).generate()


class _Generator:
    def __init__(self, seed: int) -> None:
        self._seed, self._random = seed, random.Random(seed)
        self._prefix = f"r{seed}-"
        self._setup: list[Operation] = []
        self._quotas: dict[str, list[Object]] = {}  # resource groups by ClusterQueue
        self._cohorts: dict[str, str] = {}  # parents
        self._stopped: set[str] = set()
        self._workloads: dict[str, list[Object]] = {}  # pod sets of those that have not ended
        self._inactive: set[str] = set()
        self._reclaimed: dict[str, int] = {}
        self._cohort_quotas: dict[str, list[Object]] = {}
        self._has_limit_range = False
        # Many workloads for little quota, and queues that preempt; otherwise all features in small numbers.
        self._is_dense = self._chance(0.6)
        self._numbers = 0
        self._is_deep = seed >= FIRST_DEEP
        self._is_fair = FIRST_FAIR <= seed < FIRST_DEEP
        self._is_late = FIRST_LATE <= seed < FIRST_FAIR or (seed >= FIRST_FAIR and self._chance(0.3))

    def generate(self) -> Case:
        self._create("Namespace", "ns", {}, version="v1")
        self._flavors = [self._flavor(number) for number in range(self._random.choice((1, 1, 2, 3)))]
        self._resources = ["cpu", "memory"] if self._chance(0.25) else ["cpu"]
        self._has_gpus = self._chance(0.2)
        if self._has_gpus:
            self._create("ResourceFlavor", "gpu", {})
        if self._chance(0.15):
            self._limit_range()
        if self._is_deep:
            self._runtime_class()
        for number in range(self._random.choice((1, 1, 2, 3, 4, 5) if self._is_dense else (0, 1, 1, 2, 3, 4, 5))):
            self._cohort(number)
        for number in range(self._random.choice((2, 3, 3, 4) if self._is_dense else (1, 2, 2, 3, 3, 4))):
            self._queue(number)
        steps: list[Operation] = []
        first = 6 if self._is_dense else 3
        for number in range(self._random.randint(10, 16) + first):
            steps.append(self._workload() if number < first else self._step())
        late = (number for number in range(len(steps) - 1) if self._is_late and self._chance(0.7))
        return Case(self._seed, tuple(self._setup), tuple(steps), frozenset(late))

    # Configuration.

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _named(self, name: str) -> str:
        return self._prefix + name

    def _create(self, kind: str, name: str, spec: Object, *, version: str = _VERSION, namespace: str = "") -> None:
        metadata = {"name": self._named(name)} | ({"namespace": self._named(namespace)} if namespace else {})
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        self._setup.append(Operation("create", kind, self._named(name), body))

    def _flavor(self, number: int) -> str:
        spec: Object = {"nodeTaints": [_TAINT]} if self._chance(0.2) else {}
        if self._chance(0.3):
            spec["nodeLabels"] = {"zone": self._random.choice("ab")}
        self._create("ResourceFlavor", f"f{number}", spec)
        return self._named(f"f{number}")

    def _limit_range(self) -> None:
        limits: list[Object] = [{"type": "Container", "defaultRequest": {"cpu": str(self._random.randint(1, 2))}}]
        if self._chance(0.4):
            limits.append({"type": "Pod", "max": {"cpu": "2"}})
        self._create("LimitRange", "limits", {"limits": limits}, version="v1", namespace="ns")
        self._has_limit_range = True

    def _runtime_class(self) -> None:
        name, overhead = self._named("heavy"), {"podFixed": {"cpu": "1"}}
        body = {"metadata": {"name": name}, "handler": "runc", "overhead": overhead}
        self._setup.append(Operation("create", "RuntimeClass", name, body))

    def _cohort(self, number: int) -> None:
        name = self._named(f"c{number}")
        if self._is_deep:
            parent = list(self._cohorts)[-1 if self._chance(0.7) else 0] if self._cohorts else ""
        else:
            parent = self._random.choice(list(self._cohorts)) if self._cohorts and self._chance(0.8) else ""
        spec: Object = {"parentName": parent} if parent else {}
        if self._chance(0.35):
            spec["resourceGroups"] = self._cohort_quotas[name] = self._groups(limits=bool(parent))
        self._cohorts[name] = parent
        self._add_weight(spec)
        self._create("Cohort", f"c{number}", spec)

    def _queue(self, number: int) -> None:
        name = f"q{number}"
        is_alone = not self._cohorts or self._chance(0.02 if self._is_dense else 0.1)
        cohort = "" if is_alone else self._random.choice(list(self._cohorts))
        groups = self._groups(limits=bool(cohort))
        self._quotas[self._named(name)] = groups
        spec: Object = {
            "namespaceSelector": {},
            "resourceGroups": groups,
            "queueingStrategy": "StrictFIFO" if self._chance(0.5 if self._is_deep else 0.25) else "BestEffortFIFO",
            "preemption": self._preemption(),
            "flavorFungibility": self._fungibility(),
        }
        if cohort:
            spec["cohortName"] = cohort
        self._add_weight(spec)
        self._create("ClusterQueue", name, spec)
        self._create("LocalQueue", name, {"clusterQueue": self._named(name)}, namespace="ns")

    def _add_weight(self, spec: Object) -> None:
        weight = self._random.choice(_WEIGHTS) if self._is_fair else None
        if weight is not None:
            spec["fairSharing"] = {"weight": weight}

    def _groups(self, *, limits: bool) -> list[Object]:
        flavors = self._random.sample(self._flavors, self._random.randint(1, len(self._flavors)))
        groups = [self._group(self._resources, flavors, limits=limits)]
        if self._has_gpus and self._chance(0.7):
            groups.append(self._group([_GPU], [self._named("gpu")], limits=limits))
        return groups

    def _group(self, resources: list[str], flavors: Iterable[str], *, limits: bool) -> Object:
        entries = [
            {"name": flavor, "resources": [self._quota(resource, limits=limits) for resource in resources]}
            for flavor in flavors
        ]
        return {"coveredResources": list(resources), "flavors": entries}

    def _quota(self, resource: str, *, limits: bool) -> Object:
        nominal = self._random.randint(0, _MAX_QUOTA)
        quota: Object = {"name": resource, "nominalQuota": str(nominal)}
        if limits and self._chance(0.25):
            quota["borrowingLimit"] = str(self._random.randint(0, 4))
        if limits and self._chance(0.25):
            quota["lendingLimit"] = str(self._random.randint(0, nominal))
        return quota

    def _preemption(self) -> Object:
        policy: Object = {
            "withinClusterQueue": self._random.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaimWithinCohort": self._random.choice(("Never", "LowerPriority", "Any", "Any", "Any")),
        }
        if policy["reclaimWithinCohort"] != "Never" and self._chance(0.3):
            borrow: Object = {"policy": "LowerPriority"}
            if self._chance(0.5):
                borrow["maxPriorityThreshold"] = self._random.randint(0, 1)
            policy["borrowWithinCohort"] = borrow
        return policy

    def _fungibility(self) -> Object:
        fungibility: Object = {
            "whenCanBorrow": self._random.choice(("MayStopSearch", "TryNextFlavor")),
            "whenCanPreempt": self._random.choice(("MayStopSearch", "TryNextFlavor")),
        }
        if "MayStopSearch" not in fungibility.values() and self._chance(0.6):
            fungibility["preference"] = self._random.choice(("BorrowingOverPreemption", "PreemptionOverBorrowing"))
        return fungibility

    # Steps.

    def _step(self) -> Operation:
        kinds = {
            self._workload: 10,
            self._finish: 4,
            self._reclaim: 2,
            self._delete: 0.5,
            self._change_quota: 1,
            self._stop_or_resume: 1,
            self._activate_or_not: 0.8,
            self._move: 0.6,
            self._change_limit_range: 0.4,
            self._change_cohort_quota: 0.4,
        }
        if self._is_deep:
            kinds |= {self._change_priority: 1, self._change_quota: 2, self._move: 1}
        while True:
            (kind,) = self._random.choices(list(kinds), list(kinds.values()))
            operation = kind()
            if operation is not None:
                return operation

    def _workload(self) -> Operation:
        name = self._named(f"w{self._numbers}")
        self._numbers += 1
        queue = self._random.choice(list(self._quotas))
        pod_sets = [self._pod_set("main", may_reduce=True)]
        if self._chance(0.2):
            pod_sets = [self._pod_set("main", may_reduce=False), self._pod_set("more", may_reduce=False)]
        self._workloads[name] = pod_sets
        # An owner that no controller knows: a workload without one releases its quota by itself.
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"0000-{name}", "controller": True}
        metadata = {"name": name, "namespace": self._named("ns"), "ownerReferences": [owner]}
        spec = {"queueName": queue, "priority": self._random.choice((0, 0, 1, 2, 3)), "podSets": pod_sets}
        body = {"apiVersion": _VERSION, "kind": "Workload", "metadata": metadata, "spec": spec}
        return Operation("create", "Workload", name, body)

    def _pod_set(self, name: str, *, may_reduce: bool) -> Object:
        count = self._random.choice((1, 1, 2, 3))
        requests = {resource: str(self._random.randint(1, 3)) for resource in self._resources}
        if self._chance(0.1):
            requests.pop("cpu")  # a LimitRange may set it
        if self._has_gpus and self._chance(0.4):
            requests[_GPU] = str(self._random.randint(1, 2))
        spec: Object = {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
        }
        if self._chance(0.5):
            spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        if self._chance(0.15):
            spec["nodeSelector"] = {"zone": self._random.choice("ab")}
        pod_set: Object = {"name": name, "count": count, "template": {"spec": spec}}
        if self._is_deep:
            self._vary(spec)
        if may_reduce and count > 1 and self._chance(0.3):
            pod_set["minCount"] = self._random.randint(1, count - 1)
        return pod_set

    def _vary(self, spec: Object) -> None:
        """Request the same or more in another way."""
        container = spec["containers"][0]
        match self._random.randint(0, 9):
            case 0:
                spec["runtimeClassName"] = self._named("heavy")
            case 1:
                spec["resources"] = {"requests": {"cpu": str(self._random.randint(1, 4))}}
            case 2:
                container["resources"] = {"limits": container["resources"]["requests"]}
            case 3:
                resources = {"requests": {"cpu": str(self._random.randint(1, 4))}}
                first: Object = {"name": "i", "image": "i", "resources": resources}
                spec["initContainers"] = [{**first, "restartPolicy": "Always"} if self._chance(0.5) else first]

    def _change_priority(self) -> Operation | None:
        if not self._workloads:
            return None
        name = self._random.choice(list(self._workloads))
        return Operation("patch", "Workload", name, {"spec": {"priority": self._random.randint(0, 3)}})

    def _finish(self) -> Operation | None:
        name = self._ended()
        return None if name is None else Operation("finish", "Workload", name, {})

    def _delete(self) -> Operation | None:
        name = self._ended()
        return None if name is None else Operation("delete", "Workload", name, {})

    def _ended(self) -> str | None:
        if not self._workloads:
            return None
        name = self._random.choice(list(self._workloads))
        del self._workloads[name]
        return name

    def _reclaim(self) -> Operation | None:
        names = [name for name, pod_sets in self._workloads.items() if pod_sets[0]["count"] > 1]
        if not names:
            return None
        name = self._random.choice(names)
        # Never fewer than before: that is refused while the workload has quota.
        count = self._random.randint(self._reclaimed.get(name, 0) or 1, self._workloads[name][0]["count"])
        self._reclaimed[name] = count
        body = {"status": {"reclaimablePods": [{"name": "main", "count": count}]}}
        return Operation("patch-status", "Workload", name, body)

    def _change_quota(self) -> Operation:
        return self._new_quota("ClusterQueue", self._quotas)

    def _change_cohort_quota(self) -> Operation | None:
        return self._new_quota("Cohort", self._cohort_quotas) if self._cohort_quotas else None

    def _change_limit_range(self) -> Operation | None:
        if not self._has_limit_range:
            return None
        limits = [{"type": "Container", "defaultRequest": {"cpu": str(self._random.randint(1, 3))}}]
        return Operation("patch", "LimitRange", self._named("limits"), {"spec": {"limits": limits}})

    def _new_quota(self, kind: str, quotas: dict[str, list[Object]]) -> Operation:
        name = self._random.choice(list(quotas))
        groups = json.loads(json.dumps(quotas[name]))
        quota = self._random.choice(self._random.choice(groups[0]["flavors"])["resources"])
        nominal = self._random.randint(0, _MAX_QUOTA)
        quota["nominalQuota"] = str(nominal)
        if "lendingLimit" in quota:
            quota["lendingLimit"] = str(min(nominal, int(quota["lendingLimit"])))
        quotas[name] = groups
        return Operation("patch", kind, name, {"spec": {"resourceGroups": groups}})

    def _stop_or_resume(self) -> Operation:
        # No LocalQueues: when a workload of a stopped one ends, Kueue does not retry others.
        name = self._random.choice(list(self._quotas))
        if name in self._stopped:
            self._stopped.discard(name)
            policy = "None"
        else:
            self._stopped.add(name)
            policy = self._random.choice(("Hold", "Hold", "HoldAndDrain"))
        return Operation("patch", "ClusterQueue", name, {"spec": {"stopPolicy": policy}})

    def _activate_or_not(self) -> Operation | None:
        if not self._workloads:
            return None
        name = self._random.choice(list(self._workloads))
        is_active = name in self._inactive
        (self._inactive.discard if is_active else self._inactive.add)(name)
        return Operation("patch", "Workload", name, {"spec": {"active": is_active}})

    def _move(self) -> Operation | None:
        """Attach a cohort to another parent. Roots stay roots, because limits are refused there."""
        children = [name for name, parent in self._cohorts.items() if parent]
        if not children:
            return None
        name = self._random.choice(children)
        parents = [other for other in self._cohorts if name not in self._path(other)]
        self._cohorts[name] = parent = self._random.choice(parents)
        return Operation("patch", "Cohort", name, {"spec": {"parentName": parent}})

    def _path(self, cohort: str) -> list[str]:
        path = [cohort]
        while self._cohorts[path[-1]]:
            path.append(self._cohorts[path[-1]])
        return path
