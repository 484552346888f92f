"""Equal parts of workloads are stored once: after a long day most workloads are finished ones."""

from __future__ import annotations

from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.api.objects import Object
from torchyard.api.queue import messages

FINISHED = {
    "type": messages.FINISHED,
    "status": "True",
    "reason": "Succeeded",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:09Z",
}


def finished(sim: QueueSimulation, name: str) -> Object:
    obj = sim.objects[name]
    status = {
        **obj["status"],
        "conditions": [*(dict(condition) for condition in obj["status"]["conditions"]), dict(FINISHED)],
    }
    resource_version = str(int(obj["metadata"]["resourceVersion"]) + 1000)
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": resource_version}, "status": status}


def test_equal_finished_workloads_share_admission_and_conditions() -> None:
    sim = QueueSimulation(flavor(), queue(), local(), workload("a"), workload("b"))
    sim.run_until_idle()
    expected = finished(sim, "a")["status"]
    sim.put(finished(sim, "a"), finished(sim, "b"))
    first, second = (sim.objects[name]["status"] for name in "ab")
    assert first == second == expected
    assert first["admission"] is second["admission"]
    assert all(a is b for a, b in zip(first["conditions"], second["conditions"], strict=True))
    assert first["conditions"] is not second["conditions"]


def test_workload_finished_without_quota_is_unchanged() -> None:
    sim = QueueSimulation(flavor(), queue(), local())
    obj = {**workload("a"), "status": {"conditions": [dict(FINISHED)]}}
    sim.put(obj)
    assert sim.objects["a"]["status"] == {"conditions": [FINISHED]}
