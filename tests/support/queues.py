"""Queues, flavors and workloads in a line each, for tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.resources import format_quantity
from torchyard.core.queue.scheduler import Admit, Preempt, SchedulingDecision, schedule
from torchyard.core.queue.state import QueueState

_numbers = itertools.count(1)


def flavor(name: str = "default", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"nodeLabels": labels or {}, **spec}}


def quota(resource: str, nominal: str | int, **limits: str | int) -> Object:
    return {"name": resource, "nominalQuota": nominal, **limits}


def group(*flavors: tuple[str, list[Object]]) -> Object:
    covered = [one["name"] for one in flavors[0][1]]
    return {"coveredResources": covered, "flavors": [{"name": name, "resources": quotas} for name, quotas in flavors]}


def queue(name: str = "team", *groups: Object, cpu: str | int = "4", cohort: str = "", **spec: Any) -> Object:
    limits = {key: spec.pop(key) for key in ("borrowingLimit", "lendingLimit") if key in spec}
    made = list(groups) or [group(("default", [quota("cpu", cpu, **limits)]))]
    whole: Object = {"namespaceSelector": {}, "resourceGroups": made, **spec}
    if cohort:
        whole["cohortName"] = cohort
    return {"metadata": {"name": name}, "spec": whole}


def local(name: str = "q", cluster_queue: str = "team", namespace: str = "default", **spec: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": cluster_queue, **spec}}


def pod_set(name: str = "main", *, count: int = 1, least: int | None = None, **requests: str | int) -> Object:
    asked = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in requests.items()}
    made: Object = {
        "name": name,
        "count": count,
        "template": {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": asked}}]}},
    }
    return {**made, "minCount": least} if least is not None else made


def workload(
    name: str, *pod_sets: Object, queue: str = "q", priority: int = 0, at: int = 0, cpu: str | int = 1, **spec: Any
) -> Object:
    moment = f"2026-01-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z"
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": moment,
        "resourceVersion": str(next(_numbers)),
    }
    sets = list(pod_sets) or [pod_set(cpu=cpu)]
    return {"metadata": metadata, "spec": {"podSets": sets, "queueName": queue, "priority": priority, **spec}}


def admitted(obj: Object, decision: Admit, *, at: int = 0) -> Object:
    """The workload with the quota that was decided written into it."""
    moment = f"2026-01-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z"
    conditions = [
        {"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": moment}
        for kind in (messages.QUOTA_RESERVED, messages.ADMITTED)
    ]
    status = {"admission": admission(decision.cluster_queue, decision.assignment), "conditions": conditions}
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(_numbers))}, "status": status}


def admission(queue: str, assignment: Assignment) -> Object:
    sets = [
        {
            "name": one.name,
            "count": one.count,
            "flavors": one.flavors,
            "resourceUsage": {name: format_quantity(name, one.usage[name]) for name in one.flavors},
        }
        for one in assignment.pod_sets
    ]
    return {"clusterQueue": queue, "podSetAssignments": sets}


class QueueSimulation:
    """A state, and what would happen around it: quota is given and taken back as decided."""

    def __init__(self, *objects: Object) -> None:
        self.state = QueueState(lambda _namespace: {})
        self.objects: dict[str, Object] = {}
        self._preempted: dict[str, str] = {}  # why
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
        """One round; what it admits is written."""
        decisions = schedule(self.state, 0.0)
        for one in decisions:
            if isinstance(one, Admit):
                name = one.info.key[1]
                self.objects[name] = admitted(self.objects[name], one)
                self.state.put_workload(self.objects[name])
            elif isinstance(one, Preempt):
                self._preempted.update((target.info.key[1], target.reason) for target in one.targets)
        return decisions

    def run_until_idle(self, *, evict: bool = True) -> list[str]:
        """Rounds until nothing happens; the names of what was admitted, in order."""
        order: list[str] = []
        for _ in range(10_000):
            decisions = self.run_cycle()
            order += [one.info.key[1] for one in decisions if isinstance(one, Admit)]
            preempted = [t.info.key[1] for one in decisions if isinstance(one, Preempt) for t in one.targets]
            if evict:
                for name in preempted:
                    self.release(name)
            is_over = not any(isinstance(one, Admit) for one in decisions) and not (evict and preempted)
            if is_over and not self.state.pending.active:
                return order
        raise AssertionError("the scheduler does not become idle")

    def run_and_log(self, *, max_cycles: int = 40) -> list[str]:
        """Who comes and who goes until there is nothing more to look at; who is preempted gives back at once."""
        said: list[str] = []
        for _ in range(max_cycles):
            for one in self.run_cycle():
                if isinstance(one, Admit):
                    said.append(f"{one.info.key[1]} admitted")
                elif isinstance(one, Preempt):
                    said += [f"{target.info.key[1]} preempted" for target in one.targets]
                    for target in one.targets:
                        self.release(target.info.key[1])
            if not self.state.pending.active:
                return said
        raise AssertionError(f"the scheduler does not become idle: {said}")

    def run_with_late_release(self, late: dict[str, None], gives: Callable[[], bool], *, max_cycles: int) -> None:
        """Rounds until nothing happens; `late` are those who are preempted and have not given back yet."""
        for _ in range(max_cycles):
            decisions = self.run_cycle()
            late.update((t.info.key[1], None) for one in decisions if isinstance(one, Preempt) for t in one.targets)
            given = [name for name in late if gives()]
            for name in given:
                del late[name]
                self.release(name)
            assert is_within_quota(self.state)
            if not given and not self.state.pending.active:
                return
        raise AssertionError("the scheduler does not become idle")

    def release(self, name: str) -> None:
        obj = self.objects[name]
        metadata = {**obj["metadata"], "resourceVersion": str(next(_numbers))}
        why = self._preempted.pop(name, "")
        conditions = [{"type": messages.PREEMPTED, "status": "True", "reason": why}] if why else []
        self.objects[name] = {**obj, "metadata": metadata, "status": {"conditions": conditions}}
        self.state.put_workload(self.objects[name])

    def finish(self, name: str) -> None:
        self.objects.pop(name)
        self.state.remove_workload(("default", name))

    def reserving(self) -> set[str]:
        return {key[1] for cq in self.state.cache.cluster_queues.values() for key in cq.reserving}


def is_within_quota(state: QueueState) -> bool:
    """Counted anew from what is held: no tree uses more than it has, no queue more than it may borrow."""
    state.refresh()
    for cq in state.cache.cluster_queues.values():
        root = cq.node.root
        members = state.cache.members(cq)
        for key in {key for one in members for info in one.reserving.values() for key in info.usage}:
            used = {one: sum(info.usage.get(key, 0) for info in one.reserving.values()) for one in members}
            if sum(used.values()) > root.subtree_quota.get(key, 0) + sum(
                one.node.guaranteed.get(key, 0) for one in members
            ):
                return False
            for one, amount in used.items():
                quota = one.node.quotas.get(key)
                if quota is None or amount != one.node.usage.get(key, 0):
                    return False
                if quota.borrowing_limit is not None and amount > quota.nominal + quota.borrowing_limit:
                    return False
                kept = sum(max(0, used[other] - other.node.guaranteed.get(key, 0)) for other in members)
                if one.node.parent is not None and kept > root.subtree_quota.get(key, 0):
                    return False
                if one.node.parent is None and amount > quota.nominal:
                    return False
    return True
