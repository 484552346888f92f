"""A cluster, as a program sees it: what runs there, and what is to run."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from torchyard.api import manifests
from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.core.run.outcome import RUNNABLE
from torchyard.kube.client import Client
from torchyard.kube.discovery import find_resource
from torchyard.kube.http import HttpTransport
from torchyard.sdk.background import Background
from torchyard.sdk.job import Job
from torchyard.yard.target import chosen


class Yard:
    """Any kubeconfig's context; by default as kubectl chooses it, and where that finds none the plane of this machine.

    Use it in a `with` statement, or `close` it.
    """

    def __init__(self, *, kubeconfig: str | Path | None = None, context: str = "", namespace: str = "") -> None:
        connection = chosen(Path(kubeconfig) if kubeconfig else None, context)
        self.namespace = namespace or connection.namespace
        self._client = Client(HttpTransport(connection, user_agent="torchyard-sdk"), manager="torchyard-sdk")
        self._background = Background()

    def submit(self, manifest: str | Path | Object) -> Job:
        """Create everything in a manifest (a file, or one object); answers with the one job, Job or Pod in it."""
        objects = (
            [manifest] if isinstance(manifest, dict) else manifests.read(Path(manifest).read_text(), str(manifest))
        )
        running = [one for one in objects if one.get("kind") in RUNNABLE]
        if len(running) != 1:
            raise YardError(f"{len(running)} objects here run pods; submit takes one at a time", code="BadManifest")
        return self._background.run(self._submit(objects, running[0]))

    def job(self, name: str, *, kind: str = names.KIND, api_version: str = names.API_VERSION) -> Job:
        """A job that is there already."""

        async def find() -> Job:
            ref = await find_resource(self._client, api_version, kind)
            return self._job(ref, await self._client.get(ref, name, self.namespace))

        return self._background.run(find())

    def jobs(self, *, labels: str = "") -> list[Job]:
        """The PyTorchJobs of the namespace."""

        async def find() -> list[Job]:
            ref = await find_resource(self._client, names.API_VERSION, names.KIND)
            found = (await self._client.list(ref, self.namespace, labels=labels)).items
            return [self._job(ref, {"kind": names.KIND, **one}) for one in found]

        return self._background.run(find())

    def close(self) -> None:
        self._background.run(self._client.close())
        self._background.close()

    def __enter__(self) -> Yard:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    async def _submit(self, objects: list[Object], running: Object) -> Job:
        job: Job | None = None
        for obj in objects:
            ref = await find_resource(self._client, obj["apiVersion"], obj["kind"])
            where = ((obj.get("metadata") or {}).get("namespace") or self.namespace) if ref.namespaced else ""
            made = await self._client.create(ref, obj, where)
            if obj is running:
                job = self._job(ref, made)
        assert job is not None
        return job

    def _job(self, ref: Any, obj: Object) -> Job:
        return Job(self._client, self._background, ref, obj)
