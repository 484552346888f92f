"""Why a pending workload waits: position, missing quota, who uses it, whether it can ever fit."""

from __future__ import annotations

from typing import Any

from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.core.queue.explanation import PendingExplainer, PendingExplanation
from torchyard.core.queue.visibility import workload_positions

QUEUES = [queue("mine", cpu=4, cohort="all"), queue("theirs", cpu=2, cohort="all")]
COHORTS: list[Any] = []


def explain(name: str, *workloads: Any) -> PendingExplanation:
    local_queues = [local("mine", "mine"), local("theirs", "theirs")]
    sim = QueueSimulation(flavor(), *QUEUES, *local_queues)
    for obj in workloads:
        sim.put(obj)
        sim.run_until_idle()
    of = {("default", "mine"): "mine", ("default", "theirs"): "theirs"}
    positions = workload_positions(sim.objects.values(), of)
    explainer = PendingExplainer(positions, flavors=[flavor()], cluster_queues=QUEUES, cohorts=COHORTS)
    (position,) = [position for position in positions if position.info.key[1] == name]
    explanation = explainer.explain(position, now=0.0)
    assert explanation is not None
    return explanation


def test_missing_quota_names_the_amount_the_flavor_and_who_uses_it() -> None:
    explanation = explain(
        "waits",
        workload("large", queue="theirs", cpu=4),
        workload("small", queue="mine", cpu=1),
        workload("waits", queue="mine", cpu=3, at=5),
    )
    assert explanation.lines == [
        "position 0 in ClusterQueue mine (0 is next)",
        "2 of the requested 3 cpu are missing in flavor default, used by theirs (4), mine (1)",
        "held by default/large, default/small",
    ]
    assert explanation.can_fit and not explanation.fits


def test_workload_that_can_never_fit_says_so_and_names_no_holders() -> None:
    explanation = explain("huge", workload("small", queue="mine"), workload("huge", queue="mine", cpu=9, at=5))
    assert explanation.summary == ("it can never fit; 9 cpu are 3 more than its queue can ever have in flavor default")
    assert not explanation.can_fit
    assert explanation.holders == ()


def test_positions_count_those_before_it_in_the_same_queue() -> None:
    explanation = explain(
        "third",
        workload("all", queue="mine", cpu=6),
        workload("second", queue="mine", at=5),
        workload("other", queue="theirs", at=5),
        workload("third", queue="mine", at=6),
    )
    assert explanation.position == 1
