"""What `yard run` reports about a job, from its object, its pods and its log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.core.run.failure import ContainerFailure, exit_code, first_failure
from torchyard.core.run.progress import TrainingProgress, parse_progress
from torchyard.core.run.ranks import choose_replicas
from torchyard.core.run.state import RunState, pods_of, run_state
from torchyard.core.run.summary import summarize
from torchyard.core.run.waiting import pending_reason


def condition(kind: str, status: str = "True", message: str = "") -> Object:
    return {"type": kind, "status": status, "message": message}


def obj(kind: str, *conditions: Object, **status: Any) -> Object:
    return {"kind": kind, "metadata": {"name": "a"}, "status": {"conditions": list(conditions), **status}}


@pytest.mark.parametrize(
    ("seen", "state", "done", "succeeded"),
    [
        (obj("PyTorchJob"), "Pending", False, False),
        (obj("PyTorchJob", condition("Created")), "Pending", False, False),
        (obj("PyTorchJob", condition("Created"), condition("Running")), "Running", False, False),
        (obj("PyTorchJob", condition("Running", "False"), condition("Restarting")), "Restarting", False, False),
        (obj("PyTorchJob", condition("Running", "False"), condition("Succeeded")), "Succeeded", True, True),
        (obj("PyTorchJob", condition("Running", "False"), condition("Failed")), "Failed", True, False),
        (obj("PyTorchJob", condition("Created"), condition("Suspended")), "Suspended", False, False),
        (obj("Job"), "Pending", False, False),
        (obj("Job", active=2), "Running", False, False),
        (obj("Job", active=2, ready=0), "Pending", False, False),
        (obj("Job", active=2, ready=1), "Running", False, False),
        (obj("Job", condition("SuccessCriteriaMet"), active=1), "Running", False, False),
        (obj("Job", condition("SuccessCriteriaMet"), condition("Complete")), "Complete", True, True),
        (obj("Job", condition("FailureTarget"), condition("Failed")), "Failed", True, False),
        (obj("Pod"), "Pending", False, False),
        (obj("Pod", phase="Running"), "Running", False, False),
        (obj("Pod", phase="Succeeded"), "Succeeded", True, True),
        (obj("Pod", phase="Failed"), "Failed", True, False),
    ],
)
def test_the_state_of_an_object_follows_its_status(seen: Object, state: str, done: bool, succeeded: bool) -> None:
    actual = run_state(seen)
    assert (actual.state, actual.done, actual.succeeded) == (state, done, succeeded)


def pod(name: str, code: int, at: str, *, part: str = "state") -> Object:
    ended = {"terminated": {"exitCode": code, "finishedAt": at, "reason": "Error"}}
    return {"metadata": {"name": name}, "status": {"containerStatuses": [{"name": "pytorch", part: ended}]}}


def test_the_first_failure_is_the_one_that_ended_first() -> None:
    pods = [
        pod("a-master-0", 1, "2026-01-01T00:00:09Z"),
        pod("a-worker-0", 0, "2026-01-01T00:00:01Z"),
        pod("a-worker-1", 3, "2026-01-01T00:00:05Z", part="lastState"),
    ]
    failure = first_failure(pods)
    assert failure == ContainerFailure("a-worker-1", "pytorch", 3, "Error", "2026-01-01T00:00:05Z")
    assert exit_code(RunState("Failed", done=True), failure) == 3
    assert exit_code(RunState("Failed", done=True), first_failure([])) == 1
    assert exit_code(RunState("Succeeded", done=True, succeeded=True), failure) == 0


def test_pods_are_selected_by_their_owners_labels() -> None:
    assert pods_of(obj("Pod")) == ("", "metadata.name=a")
    assert pods_of(obj("PyTorchJob")) == ("training.kubeflow.org/job-name=a", "")
    job = {**obj("Job"), "spec": {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}}}
    assert pods_of(job) == ("batch.kubernetes.io/controller-uid=u", "")


def test_the_pending_reason_comes_from_conditions_and_containers() -> None:
    full = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu."}
    assert pending_reason({"status": {"conditions": [full]}}) == "0/1 nodes are available: 1 Insufficient cpu."
    waiting = {"name": "a", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    assert pending_reason({"status": {"containerStatuses": [waiting]}}) == "ErrImagePull: no such image"
    starting = {"name": "a", "state": {"waiting": {"reason": "ContainerCreating"}}}
    assert pending_reason({"status": {"containerStatuses": [starting]}}) == ""


@pytest.mark.parametrize(
    ("line", "progress", "words"),
    [
        ("Train Epoch: 1 [640/60000 (1%)]\tloss=2.2135", TrainingProgress(1.0, 1), "epoch 1, 1%"),
        ("Epoch 3/5 45%|#### | 9/20", TrainingProgress(45.0, 3), "epoch 3, 45%"),
        (" 12.5% done", TrainingProgress(12.5), "12%"),
        ("accuracy=0.9666", None, ""),
        ("val accuracy: 12.5%", None, ""),
        ("Test set: Average loss: 0.0371, Accuracy: 9700/10000 (97%)", None, ""),
        ("cpu 45% gpu 90%", None, ""),
        ("Epoch 2:  30%|###       | 3/10 [00:01<00:02, 3.2it/s, loss=0.1]", TrainingProgress(30.0, 2), "epoch 2, 30%"),
        ("step 25/100 loss 0.3", TrainingProgress(25.0), "25%"),
        ("epoch 3 of 4", TrainingProgress(75.0), "75%"),
        ("step 7/0", None, ""),
        ("grown by 250%", None, ""),
    ],
)
def test_progress_is_parsed_from_a_log_line(line: str, progress: TrainingProgress | None, words: str) -> None:
    assert parse_progress(line) == progress
    assert progress is None or str(progress) == words


def jobset(*statuses: Object, **conditions: Any) -> Object:
    template = {"spec": {"parallelism": 2, "completions": 4, "template": {"spec": {"containers": [{"name": "a"}]}}}}
    replicated = [
        {"name": "driver", "template": {"spec": {}}},
        {"name": "workers", "replicas": 3, "template": template},
    ]
    return {
        "kind": "JobSet",
        "metadata": {"name": "a", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"replicatedJobs": replicated},
        "status": {"replicatedJobsStatus": list(statuses), **conditions},
    }


def test_a_jobset_counts_the_pods_of_its_jobs() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    pending = summarize(jobset(), now)
    assert (pending.state, pending.ready, pending.replicas) == ("Pending", 0, 7)
    ready = [{"name": "driver", "ready": 1}, {"name": "workers", "ready": 2}]
    running = summarize(jobset(*ready), now)
    assert (running.state, running.ready, running.replicas) == ("Running", 5, 7)
    ended = run_state(jobset(conditions=[condition("Completed")]))
    assert (ended.state, ended.done, ended.succeeded) == ("Completed", True, True)
    assert pods_of(jobset()) == ("jobset.sigs.k8s.io/jobset-name=a", "")


def test_a_pod_of_a_job_is_named_with_and_without_its_suffix() -> None:
    index = {"batch.kubernetes.io/job-completion-index": "1"}
    worker = {"metadata": {"name": "a-w-0-1-x7bcd", "generateName": "a-w-0-1-", "annotations": index}}
    for name in ("1", "w-0-1", "w-0-1-x7bcd"):
        assert choose_replicas([worker], "a", [name]) == [worker]
    with pytest.raises(YardError, match="no rank w-0-2"):
        choose_replicas([worker], "a", ["w-0-2"])
