"""A cluster, as a program sees it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from torchyard.api import manifests
from torchyard.api.errors import YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.core.run.state import RUNNABLE
from torchyard.kube.client import Client
from torchyard.kube.discovery import find_resource
from torchyard.kube.http import HttpTransport
from torchyard.sdk.event_loop_thread import EventLoopThread
from torchyard.sdk.job import Job
from torchyard.yard.target import resolve_connection


class Yard:
    """A connection to a cluster. Use it in a `with` statement, or call `close`.

    kubeconfig: path of a kubeconfig file; by default kubectl's, and if there is none, that of this machine's plane.
    context: a context of the kubeconfig; by default the current one.
    namespace: the namespace of jobs that do not name one; by default that of the context.
    """

    def __init__(self, *, kubeconfig: str | Path | None = None, context: str = "", namespace: str = "") -> None:
        connection = resolve_connection(Path(kubeconfig) if kubeconfig else None, context)
        self.namespace = namespace or connection.namespace
        self._client = Client(HttpTransport(connection, user_agent="torchyard-sdk"), manager="torchyard-sdk")
        self._loop = EventLoopThread()

    def submit(self, manifest: str | Path | Object) -> Job:
        """Create every object of a manifest and return the one PyTorchJob, Job or Pod among them.

        `manifest` is the path of a file, or one object as a dict.
        """
        objects = (
            [manifest] if isinstance(manifest, dict) else manifests.read(Path(manifest).read_text(), str(manifest))
        )
        runnable = [obj for obj in objects if obj.get("kind") in RUNNABLE]
        if len(runnable) != 1:
            raise YardError(
                f"the manifest has {len(runnable)} PyTorchJobs, Jobs and Pods; it must have exactly one",
                code="BadManifest",
            )
        return self._loop.run(self._submit(objects, runnable[0]))

    def job(self, name: str, *, kind: str = names.KIND, api_version: str = names.API_VERSION) -> Job:
        """Return an existing job by name."""

        async def get() -> Job:
            gvr = await find_resource(self._client, api_version, kind)
            return self._job(gvr, await self._client.get(gvr, name, self.namespace))

        return self._loop.run(get())

    def jobs(self, *, labels: str = "") -> list[Job]:
        """Return the PyTorchJobs of the namespace that match a label selector."""

        async def list_jobs() -> list[Job]:
            gvr = await find_resource(self._client, names.API_VERSION, names.KIND)
            items = (await self._client.list(gvr, self.namespace, labels=labels)).items
            return [self._job(gvr, {"kind": names.KIND, **item}) for item in items]

        return self._loop.run(list_jobs())

    def close(self) -> None:
        """Close the connection."""
        self._loop.run(self._client.close())
        self._loop.close()

    def __enter__(self) -> Yard:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    async def _submit(self, objects: list[Object], runnable: Object) -> Job:
        job: Job | None = None
        for obj in objects:
            gvr = await find_resource(self._client, obj["apiVersion"], obj["kind"])
            namespace = ((obj.get("metadata") or {}).get("namespace") or self.namespace) if gvr.namespaced else ""
            created = await self._client.create(gvr, obj, namespace, strict=True)
            if obj is runnable:
                job = self._job(gvr, created)
        assert job is not None
        return job

    def _job(self, gvr: GroupVersionResource, obj: Object) -> Job:
        return Job(self._client, self._loop, gvr, obj)
