"""Jobs on a plane with our controllers, and on a real Kubernetes with its own; the test plays the kubelet on both."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.conftest import HOUSEKEEPING
from tests.support import effort
from tests.support import kubernetes as real
from tests.support.kubernetes import Kubernetes, Server
from tests.support.waiting import TIMEOUT, first_answer

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import EVENTS, JOBS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.kube.client import JSON, ApiResponse, Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

# On both: the tested controllers and those they need; none that would delete the pods of the simulated node.
CONTROLLERS = f"{HOUSEKEEPING},job-controller,cronjob-controller,ttl-after-finished-controller"
_numbers = itertools.count()


class Cluster:
    """One namespace of a cluster with Job controllers."""

    def __init__(self, client: Client, namespace: str, kubeconfig: Path, *, is_ours: bool) -> None:
        self.client, self.namespace, self.kubeconfig, self.is_ours = client, namespace, kubeconfig, is_ours

    async def ask(self, method: str, *, body: Object | None = None, accept: str = JSON) -> ApiResponse:
        """Send a request about jobs over the network; returns the whole response."""
        transport = HttpTransport(load(self.kubeconfig), user_agent="test")
        data = b"" if body is None else orjson.dumps(body)
        answer = await transport.request(
            method, JOBS.path(self.namespace), body=data, content_type=JSON if data else "", accept=accept
        )
        await transport.close()
        await asyncio.sleep(0.05)  # aborted connections close in the next turns of the event loop
        return answer

    async def create(self, job: Object) -> Object:
        return await self.client.create(JOBS, job, self.namespace)

    async def patch(self, name: str = "work", **spec: Any) -> Object:
        return await self.client.patch(JOBS, name, {"spec": spec}, self.namespace)

    async def refused(self, name: str = "work", **spec: Any) -> str:
        with pytest.raises(StatusError) as caught:
            await self.patch(name, **spec)
        return str(caught.value)

    async def get(self, name: str = "work") -> Object:
        return await self.client.get(JOBS, name, self.namespace)

    async def status(self, name: str = "work") -> Object:
        return (await self.get(name)).get("status") or {}

    async def all_pods(self) -> list[Object]:
        pods = (await self.client.list(PODS, self.namespace)).items
        return sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    async def until(self, probe: Callable[[], Any], *, seconds: float = TIMEOUT) -> Any:
        """The first true result of an async function."""
        return await first_answer(probe, seconds=seconds)

    async def pods(self, count: int, *phases: str) -> list[Object]:
        """Wait for this many pods in these phases (by default active pods)."""
        wanted = phases or ("Pending", "Running")
        seen: list[Object] = []

        async def reached() -> bool:
            seen[:] = [
                pod
                for pod in await self.all_pods()
                if pod["status"]["phase"] in wanted and "deletionTimestamp" not in pod["metadata"]
            ]
            return len(seen) == count

        try:
            await self.until(reached)
        except AssertionError as error:
            raise AssertionError(f"there are {len(seen)} pods, not {count}") from error
        return seen

    async def counted(self, **counters: Any) -> Object:
        """Wait for these fields of the status; 0 stands for unset."""
        seen: Object = {}

        async def reached() -> Object | None:
            seen.clear()
            seen.update(await self.status())
            return seen if all((seen.get(key) or 0) == value for key, value in counters.items()) else None

        try:
            await self.until(reached)
        except AssertionError as error:
            raise AssertionError(f"the status is {seen}, not {counters}") from error
        return dict(seen)

    async def conditions(self, *expected: tuple[str, str]) -> Object:
        """Wait for exactly these conditions in this order; returns the status."""
        seen: list[tuple[str, str]] = []

        async def reached() -> Object | None:
            status = await self.status()
            seen[:] = [(condition["type"], condition["status"]) for condition in status.get("conditions") or ()]
            return status if seen == list(expected) else None

        try:
            matching_status: Object = await self.until(reached)
        except AssertionError as error:
            raise AssertionError(f"conditions are {seen}, not {list(expected)}") from error
        return matching_status

    async def complete(self) -> Object:
        return await self.conditions(("SuccessCriteriaMet", "True"), ("Complete", "True"))

    async def failed(self) -> Object:
        return await self.conditions(("FailureTarget", "True"), ("Failed", "True"))

    async def events(self, *expected: tuple[str, str]) -> list[Object]:
        """Wait for events with these reasons and message prefixes; returns all events."""

        async def recorded() -> list[Object] | None:
            items = (await self.client.list(EVENTS, self.namespace)).items
            pairs = [(item["reason"], item.get("message", "")) for item in items]
            return (
                items
                if all(any(r == reason and m.startswith(text) for r, m in pairs) for reason, text in expected)
                else None
            )

        events: list[Object] = await self.until(recorded)
        return events

    async def bind(self, pod: Object) -> None:
        """Bind a pod to a node, so that its deletion waits for the kubelet."""
        name = pod["metadata"]["name"]
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "node"}}
        await self.client.create(PODS, body, self.namespace, name=name, subresource="binding")

    async def run(self, pod: Object, *, restarts: int = 0, ready: bool = False) -> None:
        state = {"running": {"startedAt": to_rfc3339(datetime.now(UTC))}}
        status: Object = {"phase": "Running", "containerStatuses": [_container("main", state, restarts)]}
        if ready:
            status["conditions"] = [{"type": "Ready", "status": "True"}]
        await self._report(pod, status)

    async def succeed(self, *pods: Object) -> None:
        for pod in pods:
            await self._report(pod, {"phase": "Succeeded", "containerStatuses": [_container("main", _ended(0))]})

    async def fail(
        self, *pods: Object, code: int = 1, container: str = "main", ago: float = 3600, **status: Any
    ) -> None:
        """By default it failed long enough ago that no back-off remains."""
        for pod in pods:
            ended = {"phase": "Failed", "containerStatuses": [_container(container, _ended(code, ago))]}
            await self._report(pod, {**ended, **status})

    async def _report(self, pod: Object, status: Object) -> None:
        name = pod["metadata"]["name"]
        await self.client.patch(PODS, name, {"status": status}, self.namespace, subresource="status")

    async def delete_pod(self, pod: Object, *, grace: int | None = None) -> None:
        await self.client.delete(PODS, pod["metadata"]["name"], self.namespace, grace=grace)

    async def gone(self, ref: GroupVersionResource, name: str) -> None:
        async def missing() -> bool:
            return await self.client.find(ref, name, self.namespace) is None

        await self.until(missing)


def _container(name: str, state: Object, restarts: int = 0) -> Object:
    ready = "running" in state
    return {"name": name, "image": "busybox", "imageID": "", "ready": ready, "restartCount": restarts, "state": state}


def _ended(code: int, ago: float = 3600) -> Object:
    end = to_rfc3339(datetime.now(UTC) - timedelta(seconds=ago))
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": end}}


async def _namespace(client: Client) -> str:
    name = f"jobs-{next(_numbers)}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    while await client.find(SERVICE_ACCOUNTS, "default", name) is None:
        await asyncio.sleep(0.02)
    return name


async def _embedded(directory: Path) -> AsyncIterator[Cluster]:
    async with Plane(PlaneSettings(state=directory / "state", port=0, controllers=CONTROLLERS)) as plane:
        client = plane.client("test")
        yield Cluster(client, await _namespace(client), plane.settings.kubeconfig, is_ours=True)


async def _real(server: Server) -> AsyncIterator[Cluster]:
    client = Client(HttpTransport(load(server.kubeconfig), user_agent="test"), manager="test")
    try:
        yield Cluster(client, await _namespace(client), server.kubeconfig, is_ours=False)
    finally:
        await client.close()
        await asyncio.sleep(0.05)  # aborted connections close in the next turns of the event loop


@pytest.fixture(scope="session")
def kube_jobs(kubernetes_assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real Kubernetes with its own Job, CronJob and TTL controllers, as the reference."""
    if not real.has("kube-controller-manager"):
        pytest.skip("this Kubernetes has no kube-controller-manager")
    with Kubernetes(tmp_path_factory.mktemp("kube-jobs"), controllers=CONTROLLERS) as server:
        yield server


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.cluster)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Our controllers on a plane, and Kubernetes' own on a real API server: every test holds on both."""
    if request.param == "embedded":
        clusters = _embedded(tmp_path)
    else:
        clusters = _real(request.getfixturevalue("kube_jobs"))
    async for cluster in clusters:
        yield cluster


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The real cluster runs every test once; all parameters only in the full run."""
    if effort.FULL:
        return
    heard: set[object] = set()
    left_out: list[pytest.Item] = []
    for item in items:
        if isinstance(item, pytest.Function) and "[real" in item.name and item.path.parent == Path(__file__).parent:
            if item.function in heard:
                left_out.append(item)
            heard.add(item.function)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
