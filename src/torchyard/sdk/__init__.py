"""The Python SDK: what programs import. It decides nothing.

    from torchyard.sdk import Yard

    with Yard() as yard:
        job = yard.submit("job.yaml")
        for line in job.logs("master-0", follow=True):
            print(line)
        job.wait()

Modules in reading order:

- `yard`: a cluster; submits jobs and finds them
- `job`: one job; its outcome, pods, logs, scale
- `event_loop_thread`: runs the asynchronous client for synchronous callers
"""

from torchyard.sdk.job import Job, JobFailed
from torchyard.sdk.yard import Yard

__all__ = ["Job", "JobFailed", "Yard"]
