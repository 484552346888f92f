"""One job, for synchronous programs. Every method waits for that of `AsyncJob` with the same name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchyard.api.objects import Object
from torchyard.core.run.progress import TrainingProgress
from torchyard.core.run.state import RunState
from torchyard.core.run.summary import JobSummary
from torchyard.core.run.tracking import TrackingLink
from torchyard.jobs.actions import JobEvent
from torchyard.sdk.async_job import AsyncJob
from torchyard.sdk.event_loop_thread import EventLoopThread
from torchyard.sdk.views import JobSnapshot, ReplicaLine


class Job:
    """A job of any kind on a cluster.

    `object` is the state last read; every method sends a request to the server.
    """

    def __init__(self, loop: EventLoopThread, job: AsyncJob) -> None:
        self._loop, self._job = loop, job
        self.name, self.namespace, self.kind = job.name, job.namespace, job.kind

    def __repr__(self) -> str:
        return repr(self._job)

    def _repr_html_(self) -> str:
        return self.view()._repr_html_()

    @property
    def object(self) -> Object:
        return self._job.object

    def outcome(self) -> RunState:
        """Read the object and return its state."""
        return self._loop.run(self._job.outcome())

    def summary(self) -> JobSummary:
        """Read the object and return one line about it: state, replicas, queue, age."""
        return self._loop.run(self._job.summary())

    def links(self) -> list[TrackingLink]:
        """Read the object and return links to the experiment trackers that its environment names."""
        return self._loop.run(self._job.links())

    def pods(self) -> list[Object]:
        """Return the pods of the job, sorted by name."""
        return self._loop.run(self._job.pods())

    def wait(self, *, seconds: float | None = None) -> RunState:
        """Wait until the job has finished.

        Raises JobFailed if it did not succeed, and TimeoutError if it has not finished after `seconds`.
        """
        return self._loop.run(self._job.wait(seconds=seconds))

    def result(self, *, seconds: float | None = None) -> Any:
        """Wait for a job that `train` started, and return what its function returned on rank 0."""
        return self._loop.run(self._job.result(seconds=seconds))

    def logs(
        self, replica: str = "", *, container: str = "", follow: bool = False, tail: int | None = None
    ) -> Iterator[str]:
        """Yield the log lines of one replica.

        `replica` is a name such as `master-0`, or a rank; the default is the first replica. With `follow`, wait until
        the replica runs and yield its lines until it ends. `container` is by default the pod's default container, or
        its first. `tail` is the number of last lines.
        """
        return self._loop.iterate(self._job.logs(replica, container=container, follow=follow, tail=tail))

    def all_logs(self) -> Iterator[ReplicaLine]:
        """Yield the lines of all replicas as they come, until the job has finished."""
        return self._loop.iterate(self._job.all_logs())

    def progress(self, replica: str = "") -> TrainingProgress | None:
        """Return the progress that a replica has printed last; None if it has printed none."""
        return self._loop.run(self._job.progress(replica))

    def trainer_status(self) -> Object | None:
        """Return the progress that the job shows, as KEP-2779 defines it; None if the job has not reported any.

        `progressPercentage`, `estimatedRemainingSeconds`, `metrics` (`name` and `value`) and `lastUpdatedTime`.
        """
        return self._loop.run(self._job.trainer_status())

    def metrics(self, replica: str = "") -> dict[str, float]:
        """Return the last value of every metric that a replica has printed, such as `loss=0.25`."""
        return self._loop.run(self._job.metrics(replica))

    def metric_rows(self, replica: str = "", *, follow: bool = False) -> Iterator[dict[str, float]]:
        """Yield the metrics of every line that has some, for example for `pandas.DataFrame`."""
        return self._loop.iterate(self._job.metric_rows(replica, follow=follow))

    def why(self) -> list[str]:
        """Return why the job waits or has failed, in words, as `yard why`."""
        return self._loop.run(self._job.why())

    def events(self) -> list[JobEvent]:
        """Return the events of the job, its workload and its pods, oldest first."""
        return self._loop.run(self._job.events())

    def view(self) -> JobSnapshot:
        """Return the job with its replicas and metrics: a table in a terminal (rich), HTML in a notebook."""
        return self._loop.run(self._job.view())

    def show(self) -> JobSnapshot:
        """Show the job until it has finished, in a notebook or a terminal, and return its last view."""
        return self._loop.run(self._job.show())

    def scale(self, workers: int) -> None:
        """Set the number of workers of a PyTorchJob."""
        self._loop.run(self._job.scale(workers))

    def suspend(self) -> None:
        """Set `suspend`: the controller deletes the pods and keeps the job."""
        self._loop.run(self._job.suspend())

    def resume(self) -> None:
        """Clear `suspend`."""
        self._loop.run(self._job.resume())

    def delete(self) -> None:
        """Delete the job and its pods. A job that no longer exists is not an error."""
        self._loop.run(self._job.delete())
