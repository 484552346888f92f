"""Builders of queues, flavors and workloads, and a simulation of the scheduler and its cluster, for tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.decisions import Admit, Preempt, SchedulingDecision
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.resources import format_quantity
from torchyard.core.queue.scheduler import schedule
from torchyard.core.queue.settings import QueueSettings
from torchyard.core.queue.state import QueueState

_numbers = itertools.count(1)


def flavor(name: str = "default", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"nodeLabels": labels or {}, **spec}}


def quota(resource: str, nominal: str | int, **limits: str | int) -> Object:
    return {"name": resource, "nominalQuota": nominal, **limits}


def group(*flavors: tuple[str, list[Object]]) -> Object:
    covered = [resource["name"] for resource in flavors[0][1]]
    return {"coveredResources": covered, "flavors": [{"name": name, "resources": quotas} for name, quotas in flavors]}


def queue(name: str = "team", *groups: Object, cpu: str | int = "4", cohort: str = "", **spec: Any) -> Object:
    limits = {key: spec.pop(key) for key in ("borrowingLimit", "lendingLimit") if key in spec}
    resource_groups = list(groups) or [group(("default", [quota("cpu", cpu, **limits)]))]
    cluster_queue_spec: Object = {"namespaceSelector": {}, "resourceGroups": resource_groups, **spec}
    if cohort:
        cluster_queue_spec["cohortName"] = cohort
    return {"metadata": {"name": name}, "spec": cluster_queue_spec}


def local(name: str = "q", cluster_queue: str = "team", namespace: str = "default", **spec: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": cluster_queue, **spec}}


def pod_set(name: str = "main", *, count: int = 1, min_count: int | None = None, **requests: str | int) -> Object:
    resources = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in requests.items()}
    obj: Object = {
        "name": name,
        "count": count,
        "template": {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": resources}}]}},
    }
    return {**obj, "minCount": min_count} if min_count is not None else obj


def workload(
    name: str, *pod_sets: Object, queue: str = "q", priority: int = 0, at: int = 0, cpu: str | int = 1, **spec: Any
) -> Object:
    timestamp = f"2026-01-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z"
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": timestamp,
        "resourceVersion": str(next(_numbers)),
    }
    sets = list(pod_sets) or [pod_set(cpu=cpu)]
    return {"metadata": metadata, "spec": {"podSets": sets, "queueName": queue, "priority": priority, **spec}}


def admitted(obj: Object, decision: Admit, *, at: int = 0) -> Object:
    """The workload with the admission that was decided."""
    timestamp = f"2026-01-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z"
    conditions = [
        {"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": timestamp}
        for kind in (messages.QUOTA_RESERVED, messages.ADMITTED)
    ]
    status = {"admission": admission(decision.cluster_queue, decision.assignment), "conditions": conditions}
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(_numbers))}, "status": status}


def admission(queue: str, assignment: Assignment) -> Object:
    sets = [
        {
            "name": pod_set.name,
            "count": pod_set.count,
            "flavors": pod_set.flavors,
            "resourceUsage": {name: format_quantity(name, pod_set.usage[name]) for name in pod_set.flavors},
        }
        for pod_set in assignment.pod_sets
    ]
    return {"clusterQueue": queue, "podSetAssignments": sets}


class QueueSimulation:
    """A `QueueState` in a simulated cluster: decisions are written, and preempted workloads release their quota."""

    def __init__(self, *objects: Object, settings: QueueSettings | None = None) -> None:
        settings = settings or QueueSettings()
        self.state = QueueState(
            lambda _namespace: {},
            fair_sharing=settings.fair_sharing,
            admission_fair_sharing=settings.admission_fair_sharing,
        )
        self.objects: dict[str, Object] = {}
        self._preempted: dict[str, str] = {}  # the reason, by name
        self.put(*objects)

    def put(self, *objects: Object) -> None:
        for obj in objects:
            spec = obj["spec"]
            if "podSets" in spec:
                self.objects[obj["metadata"]["name"]] = obj
                self.state.put_workload(obj)
            elif "clusterQueue" in spec:
                self.state.put_local_queue(obj)
            elif "nodeLabels" in spec:
                self.state.objects.put_flavor(obj)
            elif "parentName" in spec:
                self.state.objects.put_cohort(obj)
            else:
                self.state.objects.put_cluster_queue(obj)

    def run_cycle(self) -> list[SchedulingDecision]:
        """Run one cycle, and write what it admits."""
        decisions = schedule(self.state, 0.0)
        for decision in decisions:
            if isinstance(decision, Admit):
                name = decision.info.key[1]
                self.objects[name] = admitted(self.objects[name], decision)
                self.state.put_workload(self.objects[name])
            elif isinstance(decision, Preempt):
                self._preempted.update((target.info.key[1], target.reason) for target in decision.targets)
        return decisions

    def run_until_idle(self, *, evict: bool = True) -> list[str]:
        """Run cycles until nothing changes; returns the names of the admitted workloads in order."""
        order: list[str] = []
        for _ in range(10_000):
            decisions = self.run_cycle()
            order += admitted_names(decisions)
            preempted = preempted_names(decisions)
            if evict:
                for name in preempted:
                    self.release(name)
            has_changed = bool(admitted_names(decisions)) or (evict and bool(preempted))
            if not has_changed and not self.state.pending.active:
                return order
        raise AssertionError("the scheduler does not become idle")

    def run_and_log(self, *, max_cycles: int = 40) -> list[str]:
        """Run cycles until nothing is active; returns what was admitted and preempted. Quota is released at once."""
        log: list[str] = []
        for _ in range(max_cycles):
            for decision in self.run_cycle():
                if isinstance(decision, Admit):
                    log.append(f"{decision.info.key[1]} admitted")
                elif isinstance(decision, Preempt):
                    log += [f"{target.info.key[1]} preempted" for target in decision.targets]
                    for target in decision.targets:
                        self.release(target.info.key[1])
            if not self.state.pending.active:
                return log
        raise AssertionError(f"the scheduler does not become idle: {log}")

    def run_with_late_release(self, late: dict[str, None], releases: Callable[[], bool], *, max_cycles: int) -> None:
        """Run cycles until nothing changes. `late`: preempted workloads that have not released their quota yet."""
        for _ in range(max_cycles):
            decisions = self.run_cycle()
            late.update(dict.fromkeys(preempted_names(decisions)))
            released = [name for name in late if releases()]
            for name in released:
                del late[name]
                self.release(name)
            assert is_within_quota(self.state)
            if not released and not self.state.pending.active:
                return
        raise AssertionError("the scheduler does not become idle")

    def release(self, name: str) -> None:
        obj = self.objects[name]
        metadata = {**obj["metadata"], "resourceVersion": str(next(_numbers))}
        reason = self._preempted.pop(name, "")
        conditions = [{"type": messages.PREEMPTED, "status": "True", "reason": reason}] if reason else []
        self.objects[name] = {**obj, "metadata": metadata, "status": {"conditions": conditions}}
        self.state.put_workload(self.objects[name])

    def finish(self, name: str) -> None:
        self.objects.pop(name)
        self.state.remove_workload(("default", name))

    def reserving(self) -> set[str]:
        return {key[1] for cq in self.state.cache.cluster_queues.values() for key in cq.reserving}


def admitted_names(decisions: Iterable[SchedulingDecision]) -> list[str]:
    return [decision.info.key[1] for decision in decisions if isinstance(decision, Admit)]


def preempted_names(decisions: Iterable[SchedulingDecision]) -> list[str]:
    preemptions = (decision for decision in decisions if isinstance(decision, Preempt))
    return [target.info.key[1] for preemption in preemptions for target in preemption.targets]


def is_within_quota(state: QueueState) -> bool:
    """Recounts the usage: no hierarchy uses more than it has, and no queue borrows more than it may."""
    state.refresh()
    return all(_is_member_within_quota(state.cache.members(cq), cq) for cq in state.cache.cluster_queues.values())


def _is_member_within_quota(members: list[ClusterQueue], cq: ClusterQueue) -> bool:
    root = cq.node.root
    keys = {key for member in members for info in member.reserving.values() for key in info.usage}
    for key in keys:
        used = {member: sum(info.usage.get(key, 0) for info in member.reserving.values()) for member in members}
        guaranteed = {member: member.node.guaranteed.get(key, 0) for member in members}
        at_root = sum(max(0, amount - guaranteed[member]) for member, amount in used.items())
        if sum(used.values()) > root.subtree_quota.get(key, 0) + sum(guaranteed.values()):
            return False
        for member, amount in used.items():
            quota = member.node.quotas.get(key)
            if quota is None or amount != member.node.usage.get(key, 0):
                return False
            if quota.borrowing_limit is not None and amount > quota.nominal + quota.borrowing_limit:
                return False
            if member.node.parent is not None and at_root > root.subtree_quota.get(key, 0):
                return False
            if member.node.parent is None and amount > quota.nominal:
                return False
    return True
