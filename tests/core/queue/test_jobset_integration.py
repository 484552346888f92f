"""What a queue reads of a JobSet."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.core.queue.jobset_integration import JobSetIntegration

INTEGRATION = JobSetIntegration()


def jobset(**counts: int) -> Object:
    status = {"name": "workers", "active": 0, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0, **counts}
    job = {"parallelism": 4, "completions": 3, "template": {"spec": {"containers": []}}}
    replicated = [{"name": "workers", "replicas": 2, "template": {"spec": job}}]
    return {
        "metadata": {"name": "train"},
        "spec": {"replicatedJobs": replicated},
        "status": {"replicatedJobsStatus": [status]},
    }


def test_pods_of_succeeded_jobs_can_be_reclaimed() -> None:
    assert INTEGRATION.reclaimable_pods(jobset()) == {}
    assert INTEGRATION.reclaimable_pods(jobset(succeeded=1)) == {"workers": 3}


def test_pods_are_ready_when_every_job_is_ready_or_succeeded() -> None:
    assert not INTEGRATION.pods_ready(jobset(ready=1))
    assert INTEGRATION.pods_ready(jobset(ready=1, succeeded=1))


def test_the_result_has_the_message_of_the_condition() -> None:
    job = jobset()
    assert INTEGRATION.result(job) is None
    failed = {"type": "Failed", "status": "True", "message": "jobset failed"}
    job["status"]["conditions"] = [{"type": "Completed", "status": "False"}, failed]
    assert INTEGRATION.result(job) == (False, "jobset failed")
