"""What a queue reads of a TrainJob, and how it starts and restores one."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.api.trainjob.runtimes import runtimes
from torchyard.core.queue.integrations import CannotStart, PodSetInfo, PodSetsUnknown
from torchyard.core.queue.trainjob_integration import TrainJobIntegration
from torchyard.core.trainjob.jobset import make_jobset

RUNTIME = runtimes()[0]
INTEGRATION = TrainJobIntegration(lambda _job: RUNTIME)
MINE = {"manager": "example.com/me"}
MANAGER = "kueue.x-k8s.io/manager"


def train_job(*patches: Object, **counts: int) -> Object:
    status = {"name": "node", "active": 0, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0, **counts}
    spec: dict[str, Any] = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 3}, "suspend": True}
    spec["runtimePatches"] = list(patches)
    return {
        "metadata": {"name": "mnist", "namespace": "ns", "uid": "u"},
        "spec": spec,
        "status": {"jobsStatus": [status]},
    }


def started(job: Object, **info: Any) -> Object:
    patch = INTEGRATION.start(job, [PodSetInfo("node", 3, **info)])
    return {**job, "spec": {**job["spec"], **patch["spec"]}}


def pods_of(job: Object) -> Object:
    pods: Object = make_jobset(job, RUNTIME)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return pods


def test_the_pod_sets_are_the_replicated_jobs_with_their_pods() -> None:
    [pod_set] = INTEGRATION.pod_sets(train_job())
    assert (pod_set["name"], pod_set["count"]) == ("node", 3)
    assert pod_set["template"]["spec"]["containers"][0]["name"] == "node"


def test_an_admission_is_a_patch_of_the_runtime_and_restoring_empties_it() -> None:
    toleration = {"key": "gpu", "operator": "Exists"}
    job = train_job(MINE, {"manager": MANAGER})
    running = started(job, node_selector={"zone": "a"}, labels={"l": "1"}, tolerations=[toleration])
    assert running["spec"]["suspend"] is False
    assert [patch["manager"] for patch in running["spec"]["runtimePatches"]] == ["example.com/me", MANAGER]
    pods = pods_of(running)
    assert pods["spec"]["nodeSelector"] == {"zone": "a"}
    assert pods["spec"]["tolerations"] == [toleration]
    assert pods["metadata"]["labels"] == {"l": "1"}
    assert INTEGRATION.pod_sets(running) == INTEGRATION.pod_sets(job)
    restored = INTEGRATION.restore(running, [])
    assert restored == {"spec": {"runtimePatches": [MINE, {"manager": MANAGER}]}}
    assert INTEGRATION.restore(job, []) is None
    assert INTEGRATION.suspend(job) == {"spec": {"suspend": True}}


def test_tolerations_of_a_patch_stay_and_contradictions_do_not_start() -> None:
    own = {"key": "mine", "operator": "Exists"}
    pods = {"spec": {"nodeSelector": {"zone": "b"}, "tolerations": [own]}}
    content = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": pods}}}]}}}
    job = train_job({**MINE, "trainingRuntimeSpec": content})
    other = {"key": "gpu", "operator": "Exists"}
    assert pods_of(started(job, tolerations=[other]))["spec"]["tolerations"] == [own, other]
    with pytest.raises(CannotStart):
        started(job, node_selector={"zone": "a"})
    assert "runtimePatches" not in INTEGRATION.start(job, [PodSetInfo("node", 3)])["spec"]


def test_counts_of_the_status_tell_what_is_active_ready_and_reclaimable() -> None:
    assert INTEGRATION.active_pods(train_job(active=1)) == 1
    assert INTEGRATION.active_pods(train_job()) == 0
    assert INTEGRATION.pods_ready(train_job(ready=1))
    assert not INTEGRATION.pods_ready(train_job())
    assert INTEGRATION.reclaimable_pods(train_job(succeeded=1)) == {"node": 3}
    assert INTEGRATION.is_suspended(train_job())


def test_the_result_has_the_message_of_the_condition() -> None:
    job = train_job()
    assert INTEGRATION.result(job) is None
    job["status"]["conditions"] = [{"type": "Complete", "status": "True", "message": "done"}]
    assert INTEGRATION.result(job) == (True, "done")


def test_without_its_runtime_the_pods_of_a_job_are_not_known() -> None:
    with pytest.raises(PodSetsUnknown):
        TrainJobIntegration(lambda _job: None).pod_sets(train_job())
