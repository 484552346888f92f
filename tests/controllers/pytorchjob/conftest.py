"""The PyTorchJob controller on a plane, and as the operator on a real API server, with the test as kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import pytorchjobs
from tests.support.kubernetes import Server
from tests.support.operator import denied, installation, running
from tests.support.waiting import TIMEOUT, first_answer

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import EVENTS, HORIZONTAL_POD_AUTOSCALERS, NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES
from torchyard.api.objects import Object
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

_numbers = itertools.count()


class Cluster:
    """One namespace of a cluster with the controller."""

    def __init__(self, client: Client, namespace: str, kubeconfig: Path | None = None) -> None:
        self.client, self.namespace = client, namespace
        self._kubeconfig = kubeconfig

    async def create(self, job: Object) -> Object:
        metadata = {**job["metadata"], "namespace": self.namespace}
        metadata.pop("uid", None)
        return await self.client.create(JOBS, {**job, "metadata": metadata})

    async def warnings(self, job: Object) -> list[str]:
        """The warnings in the response when the job is created."""
        assert self._kubeconfig
        transport = HttpTransport(load(self._kubeconfig), user_agent="test")
        metadata = {"name": job["metadata"]["name"]}
        answer = await transport.request(
            "POST",
            JOBS.path(self.namespace),
            body=json.dumps({**job, "metadata": metadata}).encode(),
            content_type="application/json",
        )
        await transport.close()
        await asyncio.sleep(0.05)  # aborted connections close in the next turns of the event loop
        assert answer.status == 201, answer.body
        return re.findall(r'299 - "([^"]*)"', answer.headers.get("warning", ""))

    async def patch(self, name: str, patch: Object) -> Object:
        return await self.client.patch(JOBS, name, patch, self.namespace)

    async def get(self, name: str = "train") -> Object:
        return await self.client.get(JOBS, name, self.namespace)

    async def names(self, ref: GroupVersionResource) -> list[str]:
        listing = await self.client.list(ref, self.namespace)
        return sorted(item["metadata"]["name"] for item in listing.items if item["metadata"]["name"] != "kubernetes")

    async def pod(self, name: str) -> Object:
        return await self.client.get(PODS, name, self.namespace)

    async def move(self, name: str, phase: str, *, code: int | None = None, restarts: int = 0) -> None:
        """Report a pod's phase as a kubelet would."""
        pod = await self.pod(name)
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        state: Object = {"running": {}} if code is None else {"terminated": ended}
        container = {
            "name": "pytorch",
            "image": "busybox",
            "imageID": "",
            "ready": phase == "Running",
            "restartCount": restarts,
            "state": state,
        }
        status = {"phase": phase, "containerStatuses": [container]}
        await self.client.patch(PODS, pod["metadata"]["name"], {"status": status}, self.namespace, subresource="status")

    async def until(self, probe: Callable[[], Any], *, seconds: float = TIMEOUT) -> Any:
        """The first true result of an async function."""
        return await first_answer(probe, seconds=seconds)

    async def pods(self, *expected: str) -> None:
        async def reached() -> bool:
            return await self.names(PODS) == sorted(expected)

        await self.until(reached)

    async def services(self, *expected: str) -> None:
        async def reached() -> bool:
            return await self.names(SERVICES) == sorted(expected)

        await self.until(reached)

    async def conditions(self, *expected: tuple[str, str], name: str = "train", seconds: float = TIMEOUT) -> Object:
        """Wait for exactly these conditions in this order; returns the status."""
        seen: list[tuple[str, str]] = []

        async def reached() -> Object | None:
            status: Object = (await self.get(name)).get("status") or {}
            seen[:] = [(condition["type"], condition["status"]) for condition in status.get("conditions") or ()]
            return status if seen == list(expected) else None

        try:
            matching_status: Object = await self.until(reached, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"conditions are {seen}, not {list(expected)}") from error
        return matching_status

    async def settle(self) -> None:
        """Wait until the controller has handled everything so far: a job that is created now has its event."""
        name = f"barrier-{next(_numbers)}"
        await self.create(pytorchjobs.job(name, worker=None))

        async def recorded() -> bool:
            events = (await self.client.list(EVENTS, self.namespace)).items
            return any(event["involvedObject"]["name"] == name for event in events)

        await self.until(recorded)
        await self.client.delete(JOBS, name, self.namespace)
        for ref in (PODS, SERVICES):
            with contextlib.suppress(StatusError):  # the garbage collector may be faster
                await self.client.delete(ref, f"{name}-master-0", self.namespace, grace=0)

        async def removed() -> bool:
            return not any(left.startswith(name) for left in await self.names(PODS))

        await self.until(removed)

    async def gone(self, name: str) -> None:
        async def missing() -> bool:
            return await self.client.find(JOBS, name, self.namespace) is None

        await self.until(missing)

    async def events(self, *reasons: str) -> list[Object]:
        """Wait for events with these reasons; returns all events."""

        async def recorded() -> list[Object] | None:
            items = (await self.client.list(EVENTS, self.namespace)).items
            return items if set(reasons) <= {item["reason"] for item in items} else None

        events: list[Object] = await self.until(recorded)
        return events

    async def autoscalers(self, *expected: str) -> None:
        async def reached() -> bool:
            return await self.names(HORIZONTAL_POD_AUTOSCALERS) == sorted(expected)

        await self.until(reached)


async def _namespace(client: Client) -> str:
    name = f"pytorchjobs-{next(_numbers)}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    while await client.find(SERVICE_ACCOUNTS, "default", name) is None:
        await asyncio.sleep(0.02)
    return name


async def _embedded(directory: Path) -> AsyncIterator[Cluster]:
    async with Plane(PlaneSettings(state=directory / "state", port=0)) as plane:
        client = plane.client("test")
        yield Cluster(client, await _namespace(client), plane.settings.kubeconfig)


async def _real(server: Server) -> AsyncIterator[Cluster]:
    """The operator as it is installed: its own service account, role and webhook."""
    async with installation(server) as installed:
        namespace = await _namespace(installed.admin)
        async with running(installed, namespaces=(namespace,), elect=False, webhook=True) as operator:
            yield Cluster(installed.admin, namespace, server.kubeconfig)
            assert not denied(operator), "the operator asked for what its role does not allow"


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.cluster)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The same controller on both planes: every test holds on each."""
    if request.param == "embedded":
        clusters = _embedded(tmp_path)
    else:
        clusters = _real(request.getfixturevalue("kube"))
    async for cluster in clusters:
        yield cluster
