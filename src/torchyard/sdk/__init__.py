"""The Python SDK: what programs import. Decides nothing.

from torchyard.sdk import Yard

with Yard() as yard:
    job = yard.submit("job.yaml")
    for line in job.logs("master-0", follow=True):
        print(line)
    job.wait()
"""

from torchyard.sdk.job import Job, JobFailed
from torchyard.sdk.yard import Yard

__all__ = ["Job", "JobFailed", "Yard"]
