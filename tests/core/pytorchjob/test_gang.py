"""PodGroups and autoscalers of a job."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.pytorchjobs import NOW, job, pod, replica

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages, names
from torchyard.core.pytorchjob.decide import PyTorchJobDecision, covers, decide
from torchyard.core.pytorchjob.view import EMBEDDED_GANG, PyTorchJobSettings, PyTorchJobView
from torchyard.core.scheduling.schedule import GANG_NAME, GANG_SIZE

M, W = names.MASTER, names.WORKER
RESOURCES = {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "9"}}}
METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
]


def decision_for(manifest: Object, *pods: Object, scheduler: str = "", **existing: Any) -> PyTorchJobDecision:
    return decide(PyTorchJobView.of(manifest, NOW, pods=pods, **existing), PyTorchJobSettings(gang_scheduler=scheduler))


def of_kind(decision: PyTorchJobDecision, kind: str) -> list[Object]:
    return [item for item in decision.create if item["kind"] == kind]


def test_without_a_gang_scheduler_there_is_no_pod_group() -> None:
    decision = decision_for(job(run={"schedulingPolicy": {"minAvailable": 2}}))
    assert of_kind(decision, "PodGroup") == []
    assert all("schedulerName" not in pod["spec"] for pod in of_kind(decision, "Pod"))


def test_volcano_gets_a_pod_group_and_pods_only_after_it_is_inqueue() -> None:
    manifest = job(
        master=replica(1, container=RESOURCES),
        worker=replica(2, container=RESOURCES),
        annotations={"note": "x", names.RESTARTS: "{}"},
        run={"schedulingPolicy": {"queue": "q", "priorityClass": "high", "minAvailable": 2}},
    )
    decision = decision_for(manifest, scheduler="Volcano")
    (group,) = decision.create
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert group["metadata"]["annotations"] == {"note": "x"}
    assert group["spec"] == {
        "minMember": 2,
        "queue": "q",
        "priorityClassName": "high",
        "minResources": {"cpu": "1", "memory": "2147483648"},
    }
    assert decision.status and decision.status["lastReconcileTime"]
    inqueue = {**group, "status": {"phase": "Inqueue"}}
    pods = of_kind(decision_for(manifest, scheduler="volcano", pod_group=inqueue), "Pod")
    assert [pod["spec"]["schedulerName"] for pod in pods] == ["volcano"] * 3
    assert pods[1]["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "train",
        "volcano.sh/task-spec": "worker",
    }


def test_another_scheduler_gets_the_pod_group_of_scheduler_plugins() -> None:
    manifest = job(run={"schedulingPolicy": {"scheduleTimeoutSeconds": 9}})
    decision = decision_for(manifest, scheduler="coscheduler")
    (group,) = of_kind(decision, "PodGroup")
    assert group["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert (group["spec"]["minMember"], group["spec"]["scheduleTimeoutSeconds"]) == (3, 9)
    assert [pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in of_kind(decision, "Pod")] == [
        "train"
    ] * 3


def test_a_template_with_another_scheduler_keeps_it_with_an_event() -> None:
    """Row U12."""
    decision = decision_for(
        job(master=replica(1, spec={"schedulerName": "mine"}), worker=None), scheduler="coscheduler"
    )
    assert of_kind(decision, "Pod")[0]["spec"]["schedulerName"] == "mine"
    assert [event.reason for event in decision.events] == [messages.SCHEDULER_SET]


def test_a_pod_group_follows_a_changed_minimum_and_keeps_its_queue() -> None:
    (group,) = decision_for(job(), scheduler="volcano").create
    existing = {**group, "spec": {**group["spec"], "queue": "first", "extra": 1}, "status": {"phase": "Running"}}
    manifest = job(run={"schedulingPolicy": {"minAvailable": 1, "queue": "second"}})
    (update,) = decision_for(manifest, scheduler="volcano", pod_group=existing).update
    assert (update["spec"]["minMember"], update["spec"]["queue"], update["spec"]["extra"]) == (1, "first", 1)


@pytest.mark.parametrize(
    "manifest",
    [job(run={"suspend": True}), job(status={"conditions": [{"type": "Failed", "status": "True"}]})],
    ids=["suspended", "finished"],
)
def test_a_pod_group_is_deleted_with_the_pods(manifest: Object) -> None:
    (group,) = decision_for(job(), scheduler="volcano").create
    decision = decision_for(manifest, scheduler="volcano", pod_group=group)
    assert [item.object for item in decision.delete] == [group]
    assert decision.events[0].message == messages.POD_GROUP_GOES


def test_the_embedded_scheduler_reads_the_gang_from_pods_and_follows_a_change() -> None:
    """Row E2."""
    manifest = job(run={"schedulingPolicy": {"minAvailable": 10}})
    pods = of_kind(decision_for(manifest, scheduler=EMBEDDED_GANG), "Pod")
    assert [pod["metadata"]["annotations"] for pod in pods] == [{GANG_NAME: "train", GANG_SIZE: "10"}] * 3
    changed = job(run={"schedulingPolicy": {"minAvailable": 2}})
    waiting = [{**pod(M, 0, "Pending")}, {**pod(W, 0, "Pending")}, {**pod(W, 1), "spec": {"nodeName": "n"}}]
    decision = decision_for(changed, *waiting, scheduler=EMBEDDED_GANG)
    assert [(item["metadata"]["name"], marks[GANG_SIZE]) for item, marks in decision.annotate] == [
        ("train-master-0", "2"),
        ("train-worker-0", "2"),
    ]


def test_an_elastic_job_with_metrics_gets_an_autoscaler() -> None:
    """Row T6."""
    policy = {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS}
    (autoscaler,) = of_kind(decision_for(job(master=None, elasticPolicy=policy)), "HorizontalPodAutoscaler")
    assert autoscaler["spec"] == {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train"},
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": METRICS,
    }
    policy["maxReplicas"] = 5
    (update,) = decision_for(job(master=None, elasticPolicy=policy), autoscaler=autoscaler).update
    assert update["spec"]["maxReplicas"] == 5


def test_the_autoscaler_is_deleted_when_the_job_is_suspended_or_has_no_metrics() -> None:
    """Row T7."""
    policy = {"metrics": METRICS}
    (autoscaler,) = of_kind(decision_for(job(master=None, elasticPolicy=policy)), "HorizontalPodAutoscaler")
    for manifest in (
        job(master=None, elasticPolicy=policy, run={"suspend": True}),
        job(master=None, elasticPolicy={}),
    ):
        assert [item.object for item in decision_for(manifest, autoscaler=autoscaler).delete] == [autoscaler]


@pytest.mark.parametrize(
    ("existing", "wanted", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": {"b": 1}}, False),
    ],
)
def test_fields_that_the_server_defaults_are_no_difference(existing: Object, wanted: Object, expected: bool) -> None:
    assert covers(existing, wanted) is expected
