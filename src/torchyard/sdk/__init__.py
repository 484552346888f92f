"""The Python SDK: what programs import. It decides nothing.

    from torchyard.sdk import Yard

    with Yard() as yard:
        job = yard.submit("job.yaml")
        for line in job.logs("master-0", follow=True):
            print(line)
        job.wait()

`AsyncYard` and `AsyncJob` have the same methods as coroutines and asynchronous iterators.

Modules in reading order:

- `async_yard`: a cluster; submits jobs, scripts and functions, and finds them
- `options`: how a script or a function runs
- `async_job`: one job; its outcome, pods, logs, metrics, scale
- `views`, `live`, `metric_follower`: a job as a table or as HTML, once or until it has finished
- `yard`, `job`, `event_loop_thread`: the same for synchronous callers
"""

from torchyard.core.run.failure import ContainerFailure
from torchyard.core.run.progress import TrainingProgress
from torchyard.core.run.record import RunRecord
from torchyard.core.run.state import RunState
from torchyard.core.run.summary import JobSummary
from torchyard.jobs.actions import JobEvent
from torchyard.sdk.async_job import AsyncJob, JobFailed
from torchyard.sdk.async_yard import AsyncYard
from torchyard.sdk.job import Job
from torchyard.sdk.views import JobSnapshot, ReplicaLine
from torchyard.sdk.yard import Yard

__all__ = [
    "AsyncJob",
    "AsyncYard",
    "ContainerFailure",
    "Job",
    "JobEvent",
    "JobFailed",
    "JobSnapshot",
    "JobSummary",
    "ReplicaLine",
    "RunRecord",
    "RunState",
    "TrainingProgress",
    "Yard",
]
