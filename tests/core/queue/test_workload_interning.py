"""What many workloads have is kept once: the state of a long day is mostly of those that ended."""

from __future__ import annotations

from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.api.objects import Object
from torchyard.api.queue import messages

ENDED = {
    "type": messages.FINISHED,
    "status": "True",
    "reason": "Succeeded",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:09Z",
}


def ended(sim: QueueSimulation, name: str) -> Object:
    obj = sim.objects[name]
    status = {**obj["status"], "conditions": [*(dict(one) for one in obj["status"]["conditions"]), dict(ENDED)]}
    revision = str(int(obj["metadata"]["resourceVersion"]) + 1000)
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": revision}, "status": status}


def test_equal_finished_workloads_share_admission_and_conditions() -> None:
    sim = QueueSimulation(flavor(), queue(), local(), workload("a"), workload("b"))
    sim.run_until_idle()
    expected = ended(sim, "a")["status"]
    sim.put(ended(sim, "a"), ended(sim, "b"))
    one, two = (sim.objects[name]["status"] for name in "ab")
    assert one == two == expected
    assert one["admission"] is two["admission"]
    assert all(mine is its for mine, its in zip(one["conditions"], two["conditions"], strict=True))
    assert one["conditions"] is not two["conditions"]


def test_workload_finished_without_quota_is_unchanged() -> None:
    sim = QueueSimulation(flavor(), queue(), local())
    obj = {**workload("a"), "status": {"conditions": [dict(ENDED)]}}
    sim.put(obj)
    assert sim.objects["a"]["status"] == {"conditions": [ENDED]}
