"""Why a job waits or has failed, from its object, pods, workload and events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.core.run.changes import changed_paths, content_diff, needs_new_pods, overlay
from torchyard.core.run.explain import explain, explain_record
from torchyard.core.run.failure import first_failure
from torchyard.core.run.image_pull import image_pull
from torchyard.core.run.record import build_record
from torchyard.core.run.state import default_container
from torchyard.core.run.waiting import queue_reason


def pod(name: str, **more: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main"}]}, **more}


def ended(reason: str, code: int = 137, message: str = "") -> Object:
    state = {
        "terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": "2026-01-01T00:00:00Z"}
    }
    return {"containerStatuses": [{"name": "main", "state": state}]}


def test_an_oom_kill_names_the_limit() -> None:
    limited = pod("a", status=ended("OOMKilled"))
    limited["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
    assert str(first_failure([limited])) == "a, exit code 137 (OOMKilled, memory limit 64Mi)"
    unlimited = pod("a", status=ended("OOMKilled"))
    assert "no memory limit is set" in str(first_failure([unlimited]))


def test_a_start_error_shows_its_message() -> None:
    failed = pod("a", status=ended("StartError", 128, 'exec: "pyhton": executable file not found'))
    assert str(first_failure([failed])) == 'a, exit code 128 (StartError, exec: "pyhton": executable file not found)'


def test_an_init_container_can_be_the_first_to_fail() -> None:
    status = {"initContainerStatuses": ended("Error", 3)["containerStatuses"]}
    assert str(first_failure([pod("a", status=status)])) == "a, init container main, exit code 3 (Error)"


def test_a_failed_job_names_the_command_that_shows_its_log() -> None:
    job = {
        "kind": "PyTorchJob",
        "metadata": {"name": "j"},
        "status": {"conditions": [{"type": "Failed", "status": "True", "message": "worker failed"}]},
    }
    worker = pod("j-worker-0", status=ended("Error", 1))
    worker["spec"]["containers"][0]["env"] = [{"name": "RANK", "value": "1"}]
    lines = explain(job, [worker], None, [])
    assert lines[0] == "PyTorchJob j is Failed: worker failed"
    assert lines[1].startswith("first to fail: j-worker-0, exit code 1")
    assert lines[-1] == "its last lines: yard logs j --rank 1 --tail 20"


def test_a_queued_job_gives_the_reason_of_its_workload() -> None:
    job = {
        "kind": "Job",
        "metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "teem"}},
        "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
    }
    reserved = {"type": "QuotaReserved", "status": "False", "message": "LocalQueue teem doesn't exist"}
    workload = {"spec": {}, "status": {"conditions": [reserved]}}
    assert explain(job, [], workload, [])[1] == "it waits in queue teem: LocalQueue teem doesn't exist"
    assert queue_reason({"status": {"conditions": [{"type": "Admitted", "status": "True"}]}}) == ""
    assert queue_reason({"spec": {"active": False}}) == "it is on hold"
    assert queue_reason(None) == "no workload has been created for it yet"


def test_warnings_explain_a_job_without_pods() -> None:
    job = {"kind": "Job", "metadata": {"name": "j"}}
    events = [{"type": "Warning", "reason": "FailedCreate", "message": "quota"}, {"type": "Normal", "reason": "x"}]
    assert explain(job, [], None, events)[1:] == ["FailedCreate: quota"]


def training(image: str = "a", *, workers: int = 1, state: str = "Running") -> Object:
    template = {"spec": {"containers": [{"name": "pytorch", "image": image}]}}
    return {
        "kind": "PyTorchJob",
        "spec": {
            "pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": template}},
            "runPolicy": {"suspend": False},
        },
        "status": {"conditions": [{"type": state, "status": "True"}]},
    }


@pytest.mark.parametrize(
    ("existing", "changed", "needs"),
    [
        (training(), training(), False),
        (training(), training("b"), True),
        (training(), training(workers=3), False),
        (training(), training("b", workers=3), True),
        (training(state="Suspended"), training("b"), False),
    ],
)
def test_pods_of_a_pytorchjob_keep_their_template(existing: Object, changed: Object, needs: bool) -> None:
    assert needs_new_pods(existing, changed) is needs


def test_a_diff_shows_both_values() -> None:
    diff = content_diff(training(), training("b"))
    assert "-          - image: a" in diff
    assert "+          - image: b" in diff
    assert content_diff(training(), training()) == ""
    assert list(changed_paths({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "c": 1})) == ["a[1].b", "c"]
    assert overlay({"a": 1, "l": [{"x": 1, "y": 2}]}, {"l": [{"x": 3}]}) == {"a": 1, "l": [{"x": 3, "y": 2}]}


def test_the_default_container_is_kubectls() -> None:
    two: Object = {"metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    assert default_container(two) == "a"
    two["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "b"}
    assert default_container(two) == "b"


def test_a_job_that_was_resumed_waits_for_its_terminating_pods() -> None:
    job = {"kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": {}, "status": {}}
    ending = pod("a-master-0", status={"phase": "Running"})
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    lines = explain(job, [ending], None, [])
    assert lines[1] == "a-master-0 is terminating; the job goes on without it when its process has ended"


def test_the_log_of_a_failed_init_container_is_named() -> None:
    conditions = [{"type": "Failed", "status": "True"}]
    job = {"kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": {}, "status": {"conditions": conditions}}
    status = {"initContainerStatuses": ended("Error", 3)["containerStatuses"]}
    assert explain(job, [pod("a-worker-0", status=status)], None, [])[-1].endswith("--rank worker-0 -c main --tail 20")


def event(reason: str, message: str, seconds: int, pod: str = "a") -> Object:
    at = f"2026-01-01T00:00:{seconds:02}Z"
    return {"reason": reason, "message": message, "lastTimestamp": at, "involvedObject": {"name": pod}}


PULLING = event("Pulling", 'Pulling image "pytorch/pytorch:2.9"', 1)
NO_BYTES = "Kubernetes does not report how much has arrived"
PULLED = 'Successfully pulled image "pytorch/pytorch:2.9" in 61s (61s including waiting). Image size: 3200000000 bytes.'


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], "None"),
        ([event("Pulled", 'Container image "x" already present on machine', 1)], "None"),
        ([event("Pulling", 'Pulling image "x"', 1, pod="b")], "None"),
        ([PULLING], f"pulling image pytorch/pytorch:2.9 since 2026-01-01T00:00:01Z; {NO_BYTES}"),
        ([PULLING, event("Pulled", PULLED, 9)], PULLED),
        ([PULLING, event("Failed", "no such host", 2), event("BackOff", "Back-off", 3)], "no such host"),
        (
            [PULLING, event("Pulled", PULLED, 9), event("Pulling", 'Pulling image "y"', 10)],
            f"pulling image y since 2026-01-01T00:00:10Z; {NO_BYTES}",
        ),
    ],
)
def test_a_pull_is_reported_until_its_end(events: list[Object], text: str) -> None:
    assert str(image_pull(events, "a")) == text


def test_a_job_whose_pod_pulls_an_image_says_so() -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    creating = pod("a", status={"phase": "Pending", "containerStatuses": [waiting]})
    creating["spec"]["nodeName"] = "node"
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {}, "status": {"active": 1}}
    assert explain(job, [creating], None, [PULLING])[1].startswith("a waits: pulling image pytorch/pytorch:2.9 since")
    assert len(explain(job, [creating], None, [PULLING, event("Pulled", PULLED, 9)])) == 1
    assert len(explain(job, [pod("a", status={"phase": "Running"})], None, [PULLING])) == 1


@pytest.mark.parametrize(("code", "name"), [(139, ", SIGSEGV"), (137, ", SIGKILL"), (255, ""), (128, ""), (1, "")])
def test_an_exit_code_names_its_signal(code: int, name: str) -> None:
    assert str(first_failure([pod("a", status=ended("Error", code))])) == f"a, exit code {code} (Error{name})"


def test_a_warning_is_not_repeated_and_is_shown_for_a_job_without_a_workload() -> None:
    reason = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "message": reason}
    warnings = [
        {"type": "Warning", "reason": "FailedScheduling", "message": reason},
        {"type": "Warning", "reason": "Unschedulable", "message": f"Error pod a condition message: {reason}"},
        {"type": "Warning", "reason": "Other", "message": "something else"},
    ]
    lines = explain(
        {"kind": "Job", "metadata": {"name": "j"}}, [pod("a", status={"conditions": [condition]})], None, warnings
    )
    assert lines[1:] == [f"a waits: {reason}", "Other: something else"]
    queued = {
        "kind": "Job",
        "metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
    }
    assert explain(queued, [], None, warnings)[-1] == "Other: something else"


def test_a_failed_job_whose_pods_are_deleted_says_what_the_history_has() -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "uid": "u", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [{"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}]},
    }
    killed = pod("j-node-0-0-x", status=ended("OOMKilled"))
    killed["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "0"}
    record = build_record(job, [killed], datetime(2026, 1, 1, tzinfo=UTC))
    rank = record["replicas"][0]["rank"]
    assert explain(job, [], None, [], record)[1:] == [
        "first to fail: j-node-0-0-x, exit code 137 (OOMKilled) at 2026-01-01T00:00:00Z",
        "raise resources.limits.memory of the container, or use a smaller batch",
        f"its last lines: yard logs j --rank {'node-0-0-x' if rank is None else rank} --tail 20",
    ]
    later = pod("j-y", status=ended("Error", 3))
    assert "j-y, exit code 3" in explain(job, [later], None, [], record)[1]
    without = build_record(job, [], datetime(2026, 1, 1, tzinfo=UTC))
    assert "its pods are deleted" in explain(job, [], None, [], without)[1]


def test_a_deleted_job_says_how_it_ended() -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "uid": "u", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [{"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}]},
    }
    record = build_record(job, [pod("j-x", status=ended("Error", 3))], datetime(2026, 1, 1, tzinfo=UTC))
    assert explain_record(record) == [
        "Job j is deleted; it was Failed: BackoffLimitExceeded",
        "first to fail: j-x, exit code 3 (Error) at 2026-01-01T00:00:00Z",
        "its replicas: yard history j",
        "its logs: yard logs j",
    ]
