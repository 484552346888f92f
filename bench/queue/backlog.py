"""The cost of one decision while many workloads wait: `core.queue` alone, without a server.

ClusterQueues, 200 by default, under cohorts of five levels, of which every one may borrow from all others. Workloads of
one to four cpus fill the quota, and the backlog waits behind them. Then admitted workloads finish, one after the other:
measured is the time from the end of one to the decision who gets its quota. The backlogs have different sizes, the
queues do not.
With preemption, workloads that are preempted end at once, so that one end leads to several decisions.
"""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from bench.quantiles import quantile
from torchyard.api.objects import Object
from torchyard.core.queue.decisions import Admit, Preempt, SchedulingDecision
from torchyard.core.queue.scheduler import schedule
from torchyard.core.queue.settings import FairSharing
from torchyard.core.queue.state import QueueState
from torchyard.core.queue.workload_info import Key

_LEVELS, _CHILDREN, _CPUS = 5, 3, 10
_FINISHED, _FINISHED_WITH_PREEMPTION = 1000, 20
_PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
_NAMESPACE = "default"


class Result(NamedTuple):
    backlog: int
    build_seconds: float
    cpu_ms: list[float]  # of each decision
    wall_ms: list[float]
    decided: int

    def __str__(self) -> str:
        cpu, wall = ([quantile(times, share) for share in (0.5, 0.99)] for times in (self.cpu_ms, self.wall_ms))
        return (
            f"{self.backlog:>6} pending: decision p50 {cpu[0]:.2f} ms, p99 {cpu[1]:.2f} ms of CPU time"
            f" ({wall[0]:.2f}, {wall[1]:.2f} ms elapsed); {self.decided} admitted for {len(self.cpu_ms)} finished;"
            f" state built in {self.build_seconds:.1f} s"
        )


def run_backlog(backlogs: tuple[int, ...], cluster_queues: int, *, is_fair: bool, preempts: bool) -> None:
    for backlog in backlogs:
        print(_measure(backlog, cluster_queues, is_fair=is_fair, preempts=preempts), flush=True)


def _measure(backlog: int, cluster_queues: int, *, is_fair: bool, preempts: bool) -> Result:
    chance = random.Random(backlog)
    started = time.process_time()
    state = build(cluster_queues, backlog, chance, is_fair=is_fair, preemption=_PREEMPTION if preempts else {})
    while _admitted(_settle(state)):
        pass
    built = time.process_time() - started
    cpu_ms: list[float] = []
    wall_ms: list[float] = []
    decided = 0
    for _ in range(_FINISHED_WITH_PREEMPTION if preempts else _FINISHED):
        running = [info.key for info in state.cache.workloads.values() if info.reserved_in]
        finished = chance.choice(running)
        cpu, wall = time.process_time(), time.perf_counter()
        state.remove_workload(finished)
        admitted = _admitted(_settle(state))
        cpu_ms.append((time.process_time() - cpu) * 1000)
        wall_ms.append((time.perf_counter() - wall) * 1000)
        decided += len(admitted)
    return Result(backlog, built, cpu_ms, wall_ms, decided)


def _settle(state: QueueState) -> list[SchedulingDecision]:
    decisions = _schedule(state)
    while state.pending.active:
        decisions += _schedule(state)
    return decisions


def _schedule(state: QueueState) -> list[SchedulingDecision]:
    decisions = schedule(state, 0.0)
    for decision in decisions:
        for target in decision.targets if isinstance(decision, Preempt) else ():
            state.remove_workload(target.info.key)
    return decisions


def _admitted(decisions: list[SchedulingDecision]) -> list[Key]:
    return [decision.info.key for decision in decisions if isinstance(decision, Admit)]


def build(cluster_queues: int, backlog: int, chance: random.Random, *, is_fair: bool, preemption: Object) -> QueueState:
    state = QueueState(lambda _namespace: {}, fair_sharing=FairSharing() if is_fair else None)
    state.objects.put_flavor({"metadata": {"name": "default"}, "spec": {}})
    leaves = ["root"]
    for _ in range(1, _LEVELS):
        leaves = [_put_cohort(state, f"{parent}-{child}", parent) for parent in leaves for child in range(_CHILDREN)]
    for number in range(cluster_queues):
        name = f"cq-{number}"
        state.objects.put_cluster_queue(_cluster_queue(name, leaves[number % len(leaves)], preemption))
        local_queue = {"metadata": {"name": name, "namespace": _NAMESPACE}, "spec": {"clusterQueue": name}}
        state.put_local_queue(local_queue)
    state.refresh()
    capacity = cluster_queues * _CPUS
    for number in range(backlog + capacity // 2):  # about half as many run as there are cpus
        state.put_workload(_workload(number, chance, cluster_queues))
    return state


def _put_cohort(state: QueueState, name: str, parent: str) -> str:
    state.objects.put_cohort({"metadata": {"name": name}, "spec": {"parentName": parent}})
    return name


def _cluster_queue(name: str, cohort: str, preemption: Object) -> Object:
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(_CPUS)}]}
    spec = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "preemption": preemption,
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
    }
    return {"metadata": {"name": name}, "spec": spec}


def _workload(number: int, chance: random.Random, cluster_queues: int) -> Object:
    requests = {"cpu": str(chance.randint(1, 4))}
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    seconds = f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    metadata = {
        "name": f"w-{number}",
        "namespace": _NAMESPACE,
        "uid": f"uid-{number}",
        "creationTimestamp": seconds,
        "resourceVersion": str(number + 1),
    }
    pod_sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]
    queue_name = f"cq-{chance.randrange(cluster_queues)}"
    return {
        "metadata": metadata,
        "spec": {"queueName": queue_name, "priority": chance.randint(0, 2), "podSets": pod_sets},
    }
