"""waitForPodsReady with blockAdmission: nothing is admitted while admitted workloads are not ready."""

from __future__ import annotations

from tests.kueue.harness import Scenario, condition, cpu_group, scenario

CONFIGURATION = {"waitForPodsReady": {"timeout": "10m", "recoveryTimeout": "10m", "blockAdmission": True}}


@scenario
def unready_workload_blocks_the_next_ones(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")
    s.has_pending_reasons = False
    for name in "qr":
        s.cluster_queue(name, cpu_group(3))
    s.workload("a", "q")
    s.observe()
    s.workload("b", "q")
    s.workload("c", "r")
    s.observe()
    s.set_conditions("a", "ns", condition("PodsReady", "True", "Started", "By test"))
    s.observe()
    s.finish("b")
    s.observe()
    s.workload("d", "q")
    s.observe()
    s.delete("Workload", "c", "ns")
    s.observe()
    s.set_conditions("d", "ns", condition("PodsReady", "False", "WaitForStart", "By test"))
    s.workload("e", "q", cpu=5)
    s.observe()
    s.set_conditions("d", "ns", condition("PodsReady", "True", "Started", "By test"))
    s.observe()
    s.set_conditions("d", "ns", condition("PodsReady", "False", "WaitForRecovery", "By test"))
    s.workload("f", "r")
    s.observe()
