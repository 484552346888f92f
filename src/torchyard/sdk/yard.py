"""A cluster, as a synchronous program sees it. Every method waits for that of `AsyncYard` with the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from torchyard.api.objects import Object
from torchyard.core.run.record import RunRecord
from torchyard.core.run.summary import JobSummary
from torchyard.jobs.function_source import Function
from torchyard.sdk.async_job import AsyncJob
from torchyard.sdk.async_yard import AsyncYard
from torchyard.sdk.event_loop_thread import EventLoopThread
from torchyard.sdk.job import Job
from torchyard.sdk.options import ScriptOptions
from torchyard.sdk.views import jobs_html


class Yard:
    """A connection to a cluster. Use it in a `with` statement, or call `close`.

    kubeconfig: path of a kubeconfig file; by default kubectl's, and if there is none, that of this machine's plane.
    context: a context of the kubeconfig; by default the current one.
    namespace: the namespace of jobs that do not name one; by default that of the context.
    """

    def __init__(self, *, kubeconfig: str | Path | None = None, context: str = "", namespace: str = "") -> None:
        self._yard = AsyncYard(kubeconfig=kubeconfig, context=context, namespace=namespace)
        self._loop = EventLoopThread()

    @property
    def namespace(self) -> str:
        return self._yard.namespace

    def submit(self, manifest: str | Path | Object) -> Job:
        """Create every object of a manifest and return the one job among them.

        `manifest` is the path of a file, or one object as a dict.
        """
        return self._job(self._loop.run(self._yard.submit(manifest)))

    def run(self, target: str | Path, *arguments: str, **options: Unpack[ScriptOptions]) -> Job:
        """Start a Python script or `module:function` with the files of the current directory, as `yard run` does."""
        return self._job(self._loop.run(self._yard.run(target, *arguments, **options)))

    def train(
        self,
        function: Function,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ScriptOptions],
    ) -> Job:
        """Start a function with these arguments on every rank, with the files of the current directory.

        `job.result()` returns what rank 0 returned. A function of a program or notebook travels as its source, with
        the imports, functions and constants that it uses; arguments and result are JSON.
        """
        return self._job(self._loop.run(self._yard.train(function, args=args, kwargs=kwargs, **options)))

    def job(self, name: str) -> Job:
        """Return an existing job of any kind by name; KIND/NAME if jobs of several kinds have it."""
        return self._job(self._loop.run(self._yard.job(name)))

    def jobs(self, *, labels: str = "") -> list[Job]:
        """Return the jobs of the namespace that match a label selector, of every kind, as `yard ps` lists them."""
        return [self._job(job) for job in self._loop.run(self._yard.jobs(labels=labels))]

    def summaries(self, *, labels: str = "") -> list[JobSummary]:
        """Return one line about each job of the namespace."""
        return self._loop.run(self._yard.summaries(labels=labels))

    def history(self) -> list[RunRecord]:
        """Return the jobs of the namespace that have ended, the last first; on a plane also those that were deleted."""
        return self._loop.run(self._yard.history())

    def _repr_html_(self) -> str:
        return jobs_html(self.summaries())

    def close(self) -> None:
        """Close the connection."""
        self._loop.run(self._yard.close())
        self._loop.close()

    def __enter__(self) -> Yard:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _job(self, job: AsyncJob) -> Job:
        return Job(self._loop, job)
