"""What queues do not do here is refused or reported: jobs of MultiKueue, and shares while fair sharing is off."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.controllers.queue.conftest import Cluster
from tests.support import queues

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import EVENTS, JOBS
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.controllers.queue.gvr import COHORTS, JOBSETS, PYTORCHJOBS, TRAINJOBS
from torchyard.core.queue.ignored_fields import ignored_fields
from torchyard.core.queue.settings import AdmissionFairSharing, FairSharing, QueueSettings

_TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "pytorch", "image": "busybox"}]}}
_MANAGER = "kueue.x-k8s.io/multikueue"
_JOBS: dict[str, tuple[GroupVersionResource, Object, str]] = {
    "Job": (JOBS, {"managedBy": _MANAGER, "template": _TEMPLATE}, "spec.managedBy"),
    "PyTorchJob": (
        PYTORCHJOBS,
        {
            "runPolicy": {"managedBy": _MANAGER},
            "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": _TEMPLATE}},
        },
        "spec.runPolicy.managedBy",
    ),
    "JobSet": (
        JOBSETS,
        {"managedBy": _MANAGER, "replicatedJobs": [{"name": "r", "template": {"spec": {"template": _TEMPLATE}}}]},
        "spec.managedBy",
    ),
    "TrainJob": (TRAINJOBS, {"managedBy": _MANAGER, "runtimeRef": {"name": "torch-distributed"}}, "spec.managedBy"),
}


def _job(kind: str, gvr: GroupVersionResource, spec: Object, **labels: str) -> Object:
    metadata = {"name": "there", "namespace": "default", "labels": labels}
    return {"apiVersion": gvr.api_version, "kind": kind, "metadata": metadata, "spec": copy.deepcopy(spec)}


async def test_queued_job_of_multikueue_is_refused(cluster: Cluster) -> None:
    for kind, (gvr, spec, field) in _JOBS.items():
        with pytest.raises(StatusError) as refused:
            await cluster.client.create(gvr, _job(kind, gvr, spec, **{names.QUEUE_NAME: "q"}))
        assert refused.value.status == 422, kind
        assert f"{field}: Forbidden: MultiKueue is not supported" in str(refused.value), kind


async def test_job_without_queue_may_have_another_manager(cluster: Cluster) -> None:
    """As in Kubernetes: another controller is responsible for it."""
    await cluster.client.create(JOBS, _job("Job", JOBS, _JOBS["Job"][1]))


async def test_shares_without_fair_sharing_give_a_warning_event(cluster: Cluster) -> None:
    await cluster.create("ClusterQueue", queues.queue("shared", cpu=1, fairSharing={"weight": "2"}))
    cohort = {"metadata": {"name": "all"}, "spec": {"fairSharing": {"weight": "2"}}}
    await cluster.client.create(COHORTS, {"apiVersion": names.API_VERSION, "kind": "Cohort", **cohort})
    local = queues.local("mine", "shared")
    local["spec"]["fairSharing"] = {"weight": "2"}
    await cluster.create("LocalQueue", local)

    async def reported() -> Any:
        events = [event for event in (await cluster.client.list(EVENTS)).items if event["reason"] == "FieldIgnored"]
        by_kind = {event["involvedObject"]["kind"]: event for event in events}
        return by_kind if len(by_kind) == 3 else None

    events = await cluster.until(reported, "an event about each of them")
    assert {event["type"] for event in events.values()} == {"Warning"}
    assert events["ClusterQueue"]["message"] == (
        "spec.fairSharing has no effect: fairSharing is not enabled; add it to the file of `yard up --queue-config`,"
        " or remove the field"
    )
    assert events["LocalQueue"]["message"].startswith("spec.fairSharing has no effect: admissionFairSharing is not")


_WEIGHT = {"fairSharing": {"weight": "2"}}
_BOTH = QueueSettings(fair_sharing=FairSharing(), admission_fair_sharing=AdmissionFairSharing())


@pytest.mark.parametrize(
    ("kind", "spec", "settings", "fields"),
    [
        ("ClusterQueue", _WEIGHT, QueueSettings(), ["spec.fairSharing"]),
        ("ClusterQueue", _WEIGHT, QueueSettings(fair_sharing=FairSharing()), []),
        ("LocalQueue", _WEIGHT, QueueSettings(fair_sharing=FairSharing()), ["spec.fairSharing"]),
        (
            "ClusterQueue",
            {"admissionScope": {"admissionMode": names.USAGE_BASED}},
            QueueSettings(),
            ["spec.admissionScope.admissionMode"],
        ),
        ("ClusterQueue", {"admissionScope": {"admissionMode": names.NOT_USAGE_BASED}}, QueueSettings(), []),
        ("Cohort", _WEIGHT, _BOTH, []),
        ("LocalQueue", _WEIGHT, _BOTH, []),
    ],
)
def test_fields_are_ignored_without_their_setting(
    kind: str, spec: Object, settings: QueueSettings, fields: list[str]
) -> None:
    assert [message.split(" ")[0] for message in ignored_fields(kind, spec, settings)] == fields
