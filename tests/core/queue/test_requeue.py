"""Which pending workload gets quota that was released. Each outcome is what Kueue does."""

from __future__ import annotations

import pytest
from tests.support.queues import QueueSimulation, flavor, group, local, pod_set, queue, quota, workload

from torchyard.api.objects import Object
from torchyard.core.queue import lifecycle
from torchyard.core.queue.workload_info import WorkloadInfo


def test_released_quota_goes_to_the_first_of_a_queue_even_if_it_borrows() -> None:
    """The second one would not borrow, but it is not its turn."""
    sim = QueueSimulation(
        flavor(), queue(cpu=4, cohort="all"), queue("lender", cpu=1, cohort="all"), local(), workload("running", cpu=4)
    )
    assert sim.run_until_idle() == ["running"]
    sim.put(workload("first", at=1, cpu=5), workload("second", at=2, cpu=4))
    assert sim.run_until_idle() == []
    sim.finish("running")
    assert sim.run_until_idle() == ["first"]


def test_older_workload_of_another_queue_is_not_passed_by_one_with_several_pod_sets() -> None:
    """Both need all quota of the cohort. That a pod set would fit alone does not help the one with two."""
    sim = QueueSimulation(
        flavor(),
        queue("team", cpu=2, cohort="all"),
        queue("other", cpu=1, cohort="all"),
        queue("lender", cpu=3, cohort="all"),
        local(),
        local("o", "other"),
        workload("running", cpu=6),
    )
    assert sim.run_until_idle() == ["running"]
    sim.put(workload("old", at=1, queue="o", cpu=6), workload("pair", pod_set("a", cpu=3), pod_set("b", cpu=2), at=2))
    assert sim.run_until_idle() == []
    sim.finish("running")
    assert sim.run_until_idle() == ["old"]


def test_older_workload_is_not_passed_by_one_that_borrows_only_what_is_free_already() -> None:
    """Both wait for memory and would borrow cpus, so the older one is first although it borrows memory, too."""

    def member(name: str, cpu: int, memory: int) -> Object:
        quotas = group(("default", [quota("cpu", cpu), quota("memory", memory)]))
        return queue(name, quotas, cohort="all")

    sim = QueueSimulation(
        flavor(),
        *(member("team", 4, 4), member("other", 1, 4), member("lender", 4, 0)),
        *(local(), local("o", "other")),
        workload("running", pod_set(memory=8)),
    )
    assert sim.run_until_idle() == ["running"]
    sim.put(
        workload("old", pod_set(cpu=8, memory=8), at=1), workload("young", pod_set(cpu=4, memory=3), queue="o", at=2)
    )
    assert sim.run_until_idle() == []
    sim.finish("running")
    assert sim.run_until_idle() == ["old"]


@pytest.mark.parametrize("reason", ["PodsReadyTimeout", "AdmissionCheck"])
def test_workload_that_failed_to_start_is_behind_those_that_waited(reason: str) -> None:
    sim = QueueSimulation(flavor(), queue(cpu=1), local())
    failed = lifecycle.evict(workload("failed"), reason, "", 60.0 + WorkloadInfo(workload("failed")).created)
    sim.put({**workload("failed"), "status": failed}, workload("waiting", at=30), workload("new", at=90))
    order = []
    for _ in range(3):
        [name] = sim.run_until_idle()
        order.append(name)
        sim.finish(name)
    assert order == ["waiting", "failed", "new"]
