"""A cluster, as an asynchronous program sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from torchyard.api import manifests
from torchyard.api.errors import YardError
from torchyard.api.gvr import CONFIG_MAPS
from torchyard.api.objects import Object
from torchyard.core.run.record import RunRecord
from torchyard.core.run.script_job import is_archive, script_objects
from torchyard.core.run.state import RUNNABLE
from torchyard.core.run.summary import JobSummary, summarize
from torchyard.jobs.function_source import Function, check_function, function_arguments
from torchyard.jobs.past_jobs import list_runs
from torchyard.jobs.scripts import is_script_target, prepare_function, script_manifest
from torchyard.kube.client import Client
from torchyard.kube.completion import complete
from torchyard.kube.discovery import find_resource
from torchyard.kube.http import HttpTransport
from torchyard.kube.job_lookup import JobHandle, find_job, list_jobs, qualified_name
from torchyard.kube.kubeconfig import Connection
from torchyard.sdk.async_job import AsyncJob
from torchyard.sdk.options import ScriptOptions, script_job
from torchyard.yard.target import resolve_connection


@dataclass(frozen=True, slots=True)
class _Target:
    kubeconfig: Path | None
    connection: Connection
    namespace: str
    state: Path | None = None


class AsyncYard:
    """A connection to a cluster, for asynchronous programs. Use it in an `async with` statement, or call `close`.

    kubeconfig: path of a kubeconfig file; by default kubectl's, and if there is none, that of this machine's plane.
    context: a context of the kubeconfig; by default the current one.
    namespace: the namespace of jobs that do not name one; by default that of the context.
    """

    def __init__(self, *, kubeconfig: str | Path | None = None, context: str = "", namespace: str = "") -> None:
        path = Path(kubeconfig) if kubeconfig else None
        connection = resolve_connection(path, context)
        self.namespace = namespace or connection.namespace
        self._target = _Target(path, connection, self.namespace)
        self._client = Client(HttpTransport(connection, user_agent="torchyard-sdk"), manager="torchyard-sdk")

    async def submit(self, manifest: str | Path | Object) -> AsyncJob:
        """Create every object of a manifest and return the one job among them.

        `manifest` is the path of a file, or one object as a dict.
        """
        if isinstance(manifest, dict):
            objects = [manifest]
        else:
            text = await asyncio.to_thread(Path(manifest).read_text)
            objects = manifests.read(text, str(manifest))
        return await self._create(objects)

    async def run(self, target: str | Path, *arguments: str, **options: Unpack[ScriptOptions]) -> AsyncJob:
        """Start a Python script or `module:function` with the files of the current directory, as `yard run` does."""
        if not is_script_target(str(target)):
            raise YardError(
                f"{target} is neither a Python script nor MODULE:FUNCTION",
                hint="pass a manifest to submit",
                code="BadOption",
            )
        job = script_job(str(target), arguments, options)
        dependencies = options.get("dependencies", True)
        return await self._create(
            await asyncio.to_thread(script_manifest, job, self._target, dependencies=dependencies)
        )

    async def train(
        self,
        function: Function,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ScriptOptions],
    ) -> AsyncJob:
        """Start a function with these arguments on every rank, with the files of the current directory.

        `await job.result()` returns what rank 0 returned. A function of a program or notebook travels as its source,
        with the imports, functions and constants that it uses; arguments and result are JSON.
        """
        check_function(function)
        job = script_job("", function_arguments(function, args, kwargs or {}), options)
        dependencies = options.get("dependencies", True)
        prepared = await asyncio.to_thread(prepare_function, job, function, self._target, dependencies=dependencies)
        return await self._create(script_objects(*prepared))

    async def job(self, name: str) -> AsyncJob:
        """Return an existing job of any kind by name; KIND/NAME if jobs of several kinds have it."""
        return self._job(await find_job(self._client, name, self.namespace))

    async def jobs(self, *, labels: str = "") -> list[AsyncJob]:
        """Return the jobs of the namespace that match a label selector, of every kind, as `yard ps` lists them."""
        return [self._job(job) for job in await list_jobs(self._client, self.namespace, labels=labels)]

    async def summaries(self, *, labels: str = "") -> list[JobSummary]:
        """Return one line about each job of the namespace."""
        now = datetime.now(UTC)
        return [summarize(job.object, now) for job in await list_jobs(self._client, self.namespace, labels=labels)]

    async def history(self) -> list[RunRecord]:
        """Return the jobs of the namespace that have ended, the last first; on a plane also those that were deleted."""
        return await list_runs(self._client, self._target, self.namespace)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _create(self, objects: list[Object]) -> AsyncJob:
        runnable = [obj for obj in objects if obj.get("kind") in RUNNABLE]
        if len(runnable) != 1:
            raise YardError(
                f"the manifest has {len(runnable)} jobs ({', '.join(sorted(RUNNABLE))}); it must have exactly one",
                code="BadManifest",
            )
        if len(objects) > 1 and is_archive(objects[0]):  # else the conflict would be about the files of its script
            await self._refuse_existing(runnable[0])
        archives: list[Object] = []
        jobs: list[JobHandle] = []

        async def create(obj: Object) -> None:
            gvr = await find_resource(self._client, obj["apiVersion"], obj["kind"])
            namespace = ((obj.get("metadata") or {}).get("namespace") or self.namespace) if gvr.namespaced else ""
            created = await self._client.create(gvr, obj, namespace, strict=True)
            if is_archive(obj):
                archives.append(created)
            if obj is runnable[0]:
                jobs.append(JobHandle(gvr, {"apiVersion": gvr.api_version, "kind": obj["kind"], **created}))

        try:
            for obj in objects:
                await complete(create(obj))
        except BaseException:
            if jobs:
                await self._set_owner(archives, jobs[0])
            else:
                await self._delete_archives(archives)
            raise
        await complete(self._set_owner(archives, jobs[0]))
        return self._job(jobs[0])

    async def _set_owner(self, archives: list[Object], job: JobHandle) -> None:
        """Let the files of a script be deleted with its job."""
        patch = {"metadata": {"ownerReferences": [job.owner_reference]}}
        for archive in archives:
            await self._client.patch(CONFIG_MAPS, archive["metadata"]["name"], patch, job.namespace)

    async def _refuse_existing(self, job: Object) -> None:
        gvr = await find_resource(self._client, job["apiVersion"], job["kind"])
        if await self._client.find(gvr, job["metadata"]["name"], self.namespace) is not None:
            raise YardError(
                f"{qualified_name(gvr, job)} already exists",
                hint="choose another name, or delete it first",
                code="AlreadyExists",
            )

    async def _delete_archives(self, archives: list[Object]) -> None:
        for archive in archives:
            metadata = archive["metadata"]
            await self._client.delete(CONFIG_MAPS, metadata["name"], metadata["namespace"], uid=metadata["uid"])

    def _job(self, handle: JobHandle) -> AsyncJob:
        return AsyncJob(self._client, handle, self._target)
