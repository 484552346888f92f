"""blockAdmission: nothing is admitted before the pods of all admitted workloads are ready."""

from __future__ import annotations

from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.core.queue.decisions import Admit, Preempt, StayPending
from torchyard.core.queue.state import QueueState


def simulate(*objects: Object) -> QueueSimulation:
    sim = QueueSimulation()
    sim.state = QueueState(lambda _namespace: {}, block_admission=True)
    sim.put(flavor(), *objects)
    return sim


def set_pods_ready(sim: QueueSimulation, name: str) -> None:
    obj = sim.objects[name]
    metadata = {**obj["metadata"], "resourceVersion": str(int(obj["metadata"]["resourceVersion"]) + 10**6)}
    ready = {"type": messages.PODS_READY, "status": "True", "reason": messages.REASON_STARTED, "message": ""}
    conditions = [*obj["status"]["conditions"], {**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    sim.put({**obj, "metadata": metadata, "status": {**obj["status"], "conditions": conditions}})


def test_next_workload_is_admitted_when_the_previous_one_is_ready() -> None:
    sim = simulate(queue(cpu=4), local(), *(workload(name, at=at) for at, name in enumerate("abc")))
    assert sim.run_until_idle() == ["a"]
    set_pods_ready(sim, "a")
    assert sim.run_until_idle() == ["b"]
    sim.finish("b")
    assert sim.run_until_idle() == ["c"], "a finished workload does not block"


def test_blocked_workload_waits_for_pods_ready() -> None:
    sim = simulate(queue(cpu=4), local(), workload("a"), workload("b", at=1))
    decisions = [*sim.run_cycle(), *sim.run_cycle()]
    first, *_ = (decision for decision in decisions if isinstance(decision, StayPending))
    assert first.info.key[1] == "b"
    assert first.why == (
        "WaitingForPodsReady",
        "waiting for all admitted workloads to be in PodsReady condition",
    )


def test_unready_workload_blocks_all_cluster_queues() -> None:
    queues = [queue("team"), local("q", "team"), queue("other"), local("o", "other")]
    sim = simulate(*queues, workload("a"), workload("b", queue="o", at=1))
    assert sim.run_until_idle() == ["a"]
    set_pods_ready(sim, "a")
    assert sim.run_until_idle() == ["b"]


def test_lost_pod_blocks_admission_again() -> None:
    sim = simulate(queue(), local(), workload("a"))
    sim.run_until_idle()
    set_pods_ready(sim, "a")
    ready = sim.objects["a"]
    metadata = {**ready["metadata"], "resourceVersion": str(int(ready["metadata"]["resourceVersion"]) + 1)}
    lost = [
        {**condition, "status": "False"} if condition["type"] == messages.PODS_READY else condition
        for condition in ready["status"]["conditions"]
    ]
    sim.put({**ready, "metadata": metadata, "status": {**ready["status"], "conditions": lost}})
    sim.put(workload("b"))
    assert sim.run_until_idle() == []


def test_preemption_is_not_blocked() -> None:
    strong = queue(cpu=2, preemption={"withinClusterQueue": "LowerPriority"})
    sim = simulate(strong, local(), workload("low", cpu=2))
    assert sim.run_until_idle() == ["low"]
    sim.put(workload("high", cpu=2, priority=5))
    assert any(isinstance(decision, Preempt) for decision in sim.run_cycle())
    sim.release("low")
    assert sim.run_until_idle() == ["high"]


def test_without_block_admission_all_are_admitted_at_once() -> None:
    sim = QueueSimulation(flavor(), queue(cpu=4), local(), *(workload(name) for name in "abc"))
    assert sum(isinstance(decision, Admit) for _ in range(3) for decision in sim.run_cycle()) == 3
