"""Why a pending workload waits: position, missing quota, who uses it, whether it can ever fit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, group, local, pod_set, queue, quota, workload

from torchyard.core.queue.explanation import PendingExplainer, PendingExplanation
from torchyard.core.queue.flavor_assigner import FlavorAssigner
from torchyard.core.queue.pod_defaults import NamespaceDefaults
from torchyard.core.queue.visibility import StartEstimator, workload_positions

QUEUES = [queue("mine", cpu=4, cohort="all"), queue("theirs", cpu=2, cohort="all")]
LOCAL_QUEUES = [local("mine", "mine"), local("theirs", "theirs")]
OF = {("default", "mine"): "mine", ("default", "theirs"): "theirs"}


def explain_all(*workloads: Any, cluster_queues: list[Any] = QUEUES, **objects: Any) -> dict[str, PendingExplanation]:
    """By name. The workloads are scheduled in the default queues, whatever the others say."""
    sim = QueueSimulation(flavor(), *QUEUES, *LOCAL_QUEUES)
    for obj in workloads:
        sim.put(obj)
        sim.run_until_idle()
    positions = workload_positions(sim.objects.values(), OF)
    objects = {"flavors": [flavor()], "cohorts": [], "local_queues": LOCAL_QUEUES, **objects}
    explainer = PendingExplainer(positions, cluster_queues=cluster_queues, **objects)
    explanations = {position.info.key[1]: explainer.explain(position, now=0.0) for position in positions}
    return {name: explanation for name, explanation in explanations.items() if explanation is not None}


def explain(name: str, *workloads: Any, **objects: Any) -> PendingExplanation:
    return explain_all(*workloads, **objects)[name]


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


def test_defaults_of_the_namespace_count_as_requested() -> None:
    limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "3"}}]}
    limit_range = {"metadata": {"name": "l", "namespace": "default"}, "spec": limits}
    waits = workload("waits", pod_set(), queue="mine")
    [position] = workload_positions([waits], OF, NamespaceDefaults([limit_range], []))
    objects: Any = {"flavors": [flavor()], "cohorts": [], "local_queues": LOCAL_QUEUES}
    explanation = PendingExplainer([position], cluster_queues=[queue("mine", cpu=2)], **objects).explain(position, 0.0)
    assert explanation is not None
    assert explanation.summary == "it can never fit; 3 cpu are 1 more than its queue can ever have in flavor default"


def test_workload_that_can_never_fit_says_so_and_names_no_holders() -> None:
    explanation = explain("huge", workload("small", queue="mine"), workload("huge", queue="mine", cpu=9, at=5))
    assert explanation.summary == ("it can never fit; 9 cpu are 3 more than its queue can ever have in flavor default")
    assert not explanation.can_fit
    assert explanation.holders == ()


def test_pod_set_that_never_fits_is_named_even_if_an_earlier_one_waits() -> None:
    pair = workload("pair", pod_set("a", cpu=3), pod_set("b", cpu=4), queue="mine", at=5)
    explanation = explain("pair", workload("small", queue="mine", cpu=4), pair)
    assert explanation.summary == "it can never fit; 7 cpu are 1 more than its queue can ever have in flavor default"


def test_positions_count_those_before_it_in_the_same_queue() -> None:
    explanation = explain(
        "third",
        workload("all", queue="mine", cpu=6),
        workload("second", queue="mine", at=5),
        workload("other", queue="theirs", at=5),
        workload("third", queue="mine", at=6),
    )
    assert explanation.position == 1


FULL = workload("full", queue="mine", cpu=6)  # QueueSimulation gives it all quota
CHECKED: Any = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
INACTIVE = {"type": "Active", "status": "False", "reason": "FlavorNotFound", "message": "Can't admit: no flavor."}
BLOCKED: dict[str, tuple[Any, str]] = {
    "stopped ClusterQueue": (
        {"cluster_queues": [queue("mine", cpu=99, stopPolicy="Hold")]},
        "ClusterQueue mine is inactive: Can't admit new workloads: is stopped.",
    ),
    "stopped LocalQueue": (
        {"local_queues": [local("mine", "mine", stopPolicy="Hold")]},
        "LocalQueue mine is inactive: its stopPolicy is set",
    ),
    "missing AdmissionCheck": (
        {"cluster_queues": [queue("mine", cpu=99, **CHECKED)], "checks": []},
        "ClusterQueue mine is inactive: Can't admit new workloads: references missing AdmissionCheck(s): budget.",
    ),
    "inactive by its status": (
        {"cluster_queues": [{**queue("mine", cpu=99, **CHECKED), "status": {"conditions": [INACTIVE]}}]},
        "ClusterQueue mine is inactive: Can't admit: no flavor.",
    ),
    "namespace that is not selected": (
        {
            "cluster_queues": [queue("mine", cpu=99, namespaceSelector={"matchLabels": {"team": "a"}})],
            "labels_of": {"default": {"team": "b"}}.get,
        },
        "workload namespace doesn't match ClusterQueue selector;"
        " ClusterQueue mine does not select this namespace by its labels",
    ),
}


@pytest.mark.parametrize(("objects", "reason"), BLOCKED.values(), ids=BLOCKED)
def test_queue_that_admits_nothing_is_the_first_reason(objects: Any, reason: str) -> None:
    explanation = explain("waits", FULL, workload("waits", queue="mine", at=5), **objects)
    assert explanation.summary.startswith(reason)
    assert "waits for its turn" not in explanation.summary


def test_active_queue_with_unused_quota_lets_it_wait_for_its_turn() -> None:
    active = {**INACTIVE, "status": "True"}
    cluster_queue = {**queue("mine", cpu=99, **CHECKED), "status": {"conditions": [active]}}
    waits = explain("waits", FULL, workload("waits", queue="mine", at=5), cluster_queues=[cluster_queue])
    assert waits.summary == "enough quota is unused; it waits for its turn"


def test_workload_in_backoff_says_when_it_is_queued_again() -> None:
    late = {**workload("late", queue="mine"), "status": {"requeueState": {"requeueAt": "2026-01-01T00:05:00Z"}}}
    assert explain("late", late).summary == (
        "it is queued again at 2026-01-01T00:05:00Z, because its pods were not ready in time"
    )


def queue_of(cpu: int, memory: str, **flavors: tuple[int, str]) -> Any:
    """A ClusterQueue with cpu and memory in the flavor default and in others."""
    quotas = {"default": (cpu, memory), **flavors}
    return queue("mine", group(*((name, [quota("cpu", c), quota("memory", m)]) for name, (c, m) in quotas.items())))


def test_flavor_with_one_resource_above_its_maximum_can_never_fit() -> None:
    """Although only for now too little of another resource is unused."""
    waits = workload("waits", pod_set(cpu=3, memory="9Gi"), queue="mine", at=5)
    explanation = explain("waits", FULL, waits, cluster_queues=[queue_of(8, "4Gi")])
    assert not explanation.can_fit
    assert explanation.summary.startswith("it can never fit; ")
    assert explanation.holders == ()


def test_another_flavor_that_suffices_can_fit() -> None:
    waits = workload("waits", pod_set(cpu=7, memory="9Gi"), queue="mine", at=5)
    cluster_queues = [queue_of(8, "4Gi", large=(8, "16Gi"))]
    running = {"metadata": {**FULL["metadata"], "name": "running"}, "spec": FULL["spec"]}
    explanation = explain("waits", running, waits, cluster_queues=cluster_queues, flavors=[flavor(), flavor("large")])
    assert explanation.can_fit


def test_flavor_that_the_pods_cannot_use_is_named() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    waits = workload("waits", queue="mine", at=5)
    explanation = explain("waits", FULL, waits, flavors=[flavor(nodeTaints=[taint])])
    assert explanation.summary == "it can never fit; untolerated taint {gpu yes NoSchedule <nil>} in flavor default"


def test_resource_that_no_flavor_has_is_named() -> None:
    waits = workload("waits", pod_set(gpu=1), queue="mine", at=5)
    assert explain("waits", waits).summary == ("it can never fit; resource nvidia.com/gpu unavailable in ClusterQueue")


def test_workloads_with_the_same_requirements_are_explained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[object] = []
    assign = FlavorAssigner.assign

    def counted(self: FlavorAssigner, *args: Any, **options: Any) -> Any:
        attempts.append(self)
        return assign(self, *args, **options)

    def no_estimate(*_: object) -> None:
        raise AssertionError("a summary has no estimate")

    positions = workload_positions([workload(f"w{n}", queue="mine", cpu=7) for n in range(100)], OF)
    explainer = PendingExplainer(
        positions, flavors=[flavor()], cluster_queues=QUEUES, cohorts=[], local_queues=LOCAL_QUEUES
    )
    monkeypatch.setattr(FlavorAssigner, "assign", counted)
    monkeypatch.setattr(StartEstimator, "estimate", no_estimate)
    assert {str(explainer.summarize(position)) for position in positions} == {
        "it can never fit; 7 cpu are 1 more than its queue can ever have in flavor default"
    }
    assert len(attempts) == 2  # with what is used now, and without
