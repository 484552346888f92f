"""Parts of Kueue that are left out are refused by name, never stored and ignored."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import flavor, pod_set, queue, workload

from torchyard.api.queue.validation import STRATEGIES


def _check(controller: str) -> dict[str, Any]:
    return {"metadata": {"name": "check"}, "spec": {"controllerName": controller}}


def _annotated(name: str) -> dict[str, Any]:
    annotated = pod_set(cpu=1)
    annotated["template"]["metadata"] = {"annotations": {name: "rack"}}
    return workload("one", annotated)


REQUIRED = "kueue.x-k8s.io/podset-required-topology"
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "topology of a flavor": ("ResourceFlavor", flavor(topologyName="rack"), "spec.topologyName: Forbidden: topologies"),
    "topology of a pod set": (
        "Workload",
        workload("one", {**pod_set(cpu=1), "topologyRequest": {"required": "rack"}}),
        "spec.podSets[0].topologyRequest.required: Forbidden: topologies are not supported",
    ),
    "topology of a pod template": (
        "Workload",
        _annotated(REQUIRED),
        f"spec.podSets[0].template.metadata.annotations[{REQUIRED}]: Forbidden: topologies are not supported",
    ),
    "preemption gates": (
        "Workload",
        workload("one", preemptionGates=[{"name": "gate"}]),
        "spec.preemptionGates: Forbidden: MultiKueue is not supported",
    ),
    "MultiKueue": (
        "AdmissionCheck",
        _check("kueue.x-k8s.io/multikueue"),
        "spec.controllerName: Forbidden: MultiKueue is not supported",
    ),
    "ProvisioningRequests": (
        "AdmissionCheck",
        _check("kueue.x-k8s.io/provisioning-request"),
        "spec.controllerName: Forbidden: ProvisioningRequests are not supported",
    ),
    "concurrent admission": (
        "ClusterQueue",
        queue(concurrentAdmissionPolicy={"migration": {}}),
        "spec.concurrentAdmissionPolicy: Forbidden: concurrent admission is not supported",
    ),
}


@pytest.mark.parametrize(("kind", "obj", "message"), REFUSED.values(), ids=REFUSED)
def test_unsupported_field_is_refused_by_name(kind: str, obj: dict[str, Any], message: str) -> None:
    (error,) = STRATEGIES[kind].validate(obj)
    assert str(error).startswith(message)


def test_update_cannot_add_an_unsupported_field_but_keeps_a_stored_one() -> None:
    strategy, plain = STRATEGIES["Workload"], workload("one")
    gated = {**plain, "spec": {**plain["spec"], "preemptionGates": [{"name": "kueue.x-k8s.io/multikueue"}]}}
    refused = "spec.preemptionGates: Forbidden: MultiKueue is not supported"
    assert any(str(error).startswith(refused) for error in strategy.validate_update(gated, plain))
    assert not any(str(error).startswith(refused) for error in strategy.validate_update(gated, gated))


def test_labels_that_kueue_sets_without_a_topology_are_accepted() -> None:
    request = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
    assert STRATEGIES["Workload"].validate(workload("one", {**pod_set(cpu=1), "topologyRequest": request})) == []


def test_other_controllers_of_checks_are_accepted() -> None:
    assert STRATEGIES["AdmissionCheck"].validate(_check("example.com/budget")) == []
