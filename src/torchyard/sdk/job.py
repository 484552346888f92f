"""One job: its state, the logs of its replicas, how it finished and why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.core.run.failure import ContainerFailure, first_failure
from torchyard.core.run.line_splitter import LineSplitter
from torchyard.core.run.state import RunState, default_container, pods_of, run_state, suspend_patch
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.sdk.event_loop_thread import EventLoopThread


class JobFailed(YardError):
    """A job finished without success.

    `outcome` holds the job's state and message, `first` the container that failed before all others, if there is one.
    """

    code = "JobFailed"

    def __init__(self, job: str, result: RunState, first: ContainerFailure | None) -> None:
        message = f"{job} {result.state}" + (f": {result.message}" if result.message else "")
        if first is not None:
            message += f"; first to fail: {first}"
        super().__init__(message)
        self.outcome, self.first = result, first


class Job:
    """A PyTorchJob, Job or Pod on a cluster.

    `object` is the state last read; every method sends a request to the server.
    """

    def __init__(self, client: Client, loop: EventLoopThread, gvr: GroupVersionResource, obj: Object) -> None:
        self._client, self._loop, self._gvr = client, loop, gvr
        self.object = obj
        self.name: str = obj["metadata"]["name"]
        self.namespace: str = obj["metadata"].get("namespace", "")

    def __repr__(self) -> str:
        return f"Job({self.namespace}/{self.name}: {run_state(self.object).state})"

    def outcome(self) -> RunState:
        """Read the object and return its state."""
        self.object = self._loop.run(self._client.get(self._gvr, self.name, self.namespace))
        return run_state(self.object)

    def pods(self) -> list[Object]:
        """Return the pods of the job, sorted by name."""
        return self._loop.run(self._pods())

    def wait(self, *, seconds: float | None = None) -> RunState:
        """Wait until the job has finished.

        Raises JobFailed if it did not succeed, and TimeoutError if it has not finished after `seconds`.
        """
        return self._loop.run(self._wait(seconds))

    def logs(self, replica: str = "", *, container: str = "", follow: bool = False) -> Iterator[str]:
        """Yield the log lines of one replica.

        `replica` is a name such as `master-0`; the default is the first replica. With `follow`, wait until the replica
        runs and yield its lines until it ends. `container` is by default the
        pod's default container, or its first.
        """
        return self._loop.iterate(self._lines(replica, container, follow=follow))

    def scale(self, workers: int) -> None:
        """Set the number of workers of a PyTorchJob."""
        patch = {"spec": {"replicas": workers}}
        self._loop.run(self._client.patch(self._gvr, self.name, patch, self.namespace, subresource="scale"))

    def suspend(self) -> None:
        """Set `suspend`: the controller deletes the pods and keeps the job."""
        self._set_suspend(suspended=True)

    def resume(self) -> None:
        """Clear `suspend`."""
        self._set_suspend(suspended=False)

    def delete(self) -> None:
        """Delete the job and its pods. A job that no longer exists is not an error."""

        async def delete() -> None:
            try:
                await self._client.delete(self._gvr, self.name, self.namespace, uid=self.object["metadata"]["uid"])
            except StatusError as error:
                if error.status not in (404, 409):
                    raise

        self._loop.run(delete())

    def _set_suspend(self, *, suspended: bool) -> None:
        patch = suspend_patch(self.object["kind"], suspended=suspended)
        self._loop.run(self._client.patch(self._gvr, self.name, patch, self.namespace))

    async def _pods(self) -> list[Object]:
        labels, fields = pods_of(self.object)
        pods = (await self._client.list(PODS, self.namespace, labels=labels, fields=fields)).items
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    async def _wait(self, seconds: float | None) -> RunState:
        kind, uid = self.object["kind"], self.object["metadata"]["uid"]

        def has_finished(obj: Object | None) -> bool:
            if obj is None or obj["metadata"]["uid"] != uid:
                raise YardError(f"{kind} {self.namespace}/{self.name} was deleted while it ran", code="Gone")
            return run_state({"kind": kind, **obj}).done

        async with asyncio.timeout(seconds):
            last = await self._wait_for(self._gvr, self.name, has_finished)
        self.object = {"kind": kind, **(last or {})}
        result = run_state(self.object)
        if not result.succeeded:
            raise JobFailed(
                f"{self.object['kind']} {self.namespace}/{self.name}", result, first_failure(await self._pods())
            )
        return result

    async def _lines(self, replica: str, container: str, *, follow: bool) -> AsyncGenerator[str, None]:
        pod = await self._pod_name(replica)
        if follow:
            await self._wait_for(PODS, pod, lambda obj: obj is not None and _has_started(obj))
        if not container:
            container = default_container(await self._client.get(PODS, pod, self.namespace))
        lines = LineSplitter()
        pieces = self._client.logs(PODS, pod, self.namespace, container=container, follow=follow)
        async with aclosing(pieces) as stream:
            async for piece in stream:
                for line in lines.of(piece):
                    yield line.text
        if lines.rest:
            yield lines.rest

    async def _pod_name(self, replica: str) -> str:
        if replica or self.object["kind"] == "Pod":
            return f"{self.name}-{replica}" if replica else self.name
        if self.object["kind"] == names.KIND:
            specs = self.object["spec"]["pytorchReplicaSpecs"]
            return names.replica_name(self.name, names.MASTER if names.MASTER in specs else names.WORKER, 0)
        pods = await self._pods()
        if not pods:
            raise YardError(f"{self.object['kind']} {self.namespace}/{self.name} has no pods yet")
        return str(pods[0]["metadata"]["name"])

    async def _wait_for(
        self, gvr: GroupVersionResource, name: str, condition: Callable[[Object | None], bool]
    ) -> Object | None:
        """Return the first state of an object for which the condition holds; None stands for a missing object."""
        changed = asyncio.Event()
        informer = Informer(self._client, gvr, namespace=self.namespace, fields=f"metadata.name={name}")
        informer.on_change(lambda *_: changed.set())
        watching = asyncio.ensure_future(informer.run())
        try:
            await informer.synced.wait()
            while not condition(obj := informer.get(self.namespace, name)):
                await changed.wait()
                changed.clear()
            return obj
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def _has_started(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")
