"""One job, from its beginning to its end: what it does, what its replicas print, how it ended and why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.core.run.lines import Lines
from torchyard.core.run.outcome import Failure, Outcome, first_failure, outcome, pods_of
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.sdk.background import Background


class JobFailed(YardError):
    """The job ended, and not well. `outcome` says how, `first` which container failed before all others."""

    code = "JobFailed"

    def __init__(self, job: str, result: Outcome, first: Failure | None) -> None:
        said = f"{job} {result.state}" + (f": {result.message}" if result.message else "")
        if first is not None:
            said += f"; first to fail: {first.pod}, exit code {first.exit_code}"
        super().__init__(said)
        self.outcome, self.first = result, first


class Job:
    """`object` is what was last seen of it; every method asks the server."""

    def __init__(self, client: Client, background: Background, ref: GroupVersionResource, obj: Object) -> None:
        self._client, self._background, self._ref = client, background, ref
        self.object = obj
        self.name: str = obj["metadata"]["name"]
        self.namespace: str = obj["metadata"].get("namespace", "")

    def __repr__(self) -> str:
        return f"Job({self.namespace}/{self.name}: {outcome(self.object).state})"

    def outcome(self) -> Outcome:
        """How it stands now."""
        self.object = self._background.run(self._client.get(self._ref, self.name, self.namespace))
        return outcome(self.object)

    def pods(self) -> list[Object]:
        return self._background.run(self._pods())

    def wait(self, *, seconds: float | None = None) -> Outcome:
        """Until it has ended. Raises JobFailed when that was no success, and TimeoutError when it takes longer."""
        return self._background.run(self._wait(seconds))

    def logs(self, replica: str = "", *, container: str = "", follow: bool = False) -> Iterator[str]:
        """The lines of one replica, such as `master-0`; by default of the first. `follow` waits until it runs."""
        return self._background.each(self._lines(replica, container, follow=follow))

    def scale(self, workers: int) -> None:
        """Change the number of a PyTorchJob's workers."""
        patch = {"spec": {"replicas": workers}}
        self._background.run(self._client.patch(self._ref, self.name, patch, self.namespace, subresource="scale"))

    def suspend(self) -> None:
        self._suspend(suspended=True)

    def resume(self) -> None:
        self._suspend(suspended=False)

    def delete(self) -> None:
        """With its pods. One that is gone already is no error."""

        async def go() -> None:
            try:
                await self._client.delete(self._ref, self.name, self.namespace, uid=self.object["metadata"]["uid"])
            except StatusError as error:
                if error.status not in (404, 409):
                    raise

        self._background.run(go())

    def _suspend(self, *, suspended: bool) -> None:
        inner = {"suspend": suspended}
        patch = {"spec": {"runPolicy": inner} if self.object["kind"] == names.KIND else inner}
        self._background.run(self._client.patch(self._ref, self.name, patch, self.namespace))

    async def _pods(self) -> list[Object]:
        labels, fields = pods_of(self.object)
        found = (await self._client.list(PODS, self.namespace, labels=labels, fields=fields)).items
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    async def _wait(self, seconds: float | None) -> Outcome:
        kind, uid = self.object["kind"], self.object["metadata"]["uid"]

        def ended(found: Object | None) -> bool:
            if found is None or found["metadata"]["uid"] != uid:
                raise YardError(f"{kind} {self.namespace}/{self.name} was deleted meanwhile", code="Gone")
            return outcome({"kind": kind, **found}).done

        async with asyncio.timeout(seconds):
            found = await self._until(self._ref, self.name, ended)
        self.object = {"kind": kind, **(found or {})}
        result = outcome(self.object)
        if not result.succeeded:
            raise JobFailed(
                f"{self.object['kind']} {self.namespace}/{self.name}", result, first_failure(await self._pods())
            )
        return result

    async def _lines(self, replica: str, container: str, *, follow: bool) -> AsyncGenerator[str, None]:
        pod = await self._pod_of(replica)
        if follow:
            await self._until(PODS, pod, lambda found: found is not None and _has_begun(found))
        lines = Lines()
        pieces = self._client.logs(PODS, pod, self.namespace, container=container, follow=follow)
        async with aclosing(pieces) as stream:
            async for piece in stream:
                for line in lines.of(piece):
                    yield line
        if lines.rest:
            yield lines.rest

    async def _pod_of(self, replica: str) -> str:
        if replica or self.object["kind"] == "Pod":
            return f"{self.name}-{replica}" if replica else self.name
        if self.object["kind"] == names.KIND:
            specs = self.object["spec"]["pytorchReplicaSpecs"]
            return names.replica_name(self.name, names.MASTER if names.MASTER in specs else names.WORKER, 0)
        found = await self._pods()
        if not found:
            raise YardError(f"{self.object['kind']} {self.namespace}/{self.name} has no pods yet")
        return str(found[0]["metadata"]["name"])

    async def _until(
        self, ref: GroupVersionResource, name: str, claim: Callable[[Object | None], bool]
    ) -> Object | None:
        """The first state of an object, None for none, of which the claim holds."""
        changed = asyncio.Event()
        informer = Informer(self._client, ref, namespace=self.namespace, fields=f"metadata.name={name}")
        informer.on_change(lambda *_: changed.set())
        watching = asyncio.ensure_future(informer.run())
        try:
            await informer.synced.wait()
            while not claim(found := informer.get(self.namespace, name)):
                await changed.wait()
                changed.clear()
            return found
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def _has_begun(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")
