"""A whole plane with its node, in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from torchyard.api.gvr import EVENTS, PODS
from torchyard.api.objects import Object
from torchyard.core.pod.logs import LogOptions
from torchyard.kube.client import Client
from torchyard.node.shutdown import stop_pods
from torchyard.node.streams import NodeStreams
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings


class RunningNode:
    """Creates pods on a real node, waits for them and reads their status, logs and events."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.client: Client = plane.client("test")
        self.name = plane.settings.node_name

    async def create(self, name: str, spec: Object, **metadata: Any) -> Object:
        spec = {
            "nodeName": self.name,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            **spec,
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}
        return await self.client.create(PODS, pod, "default")

    async def script(self, name: str, script: str, *, policy: str = "Never", **spec: Any) -> Object:
        container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], **spec.pop("container", {})}
        return await self.create(name, {"restartPolicy": policy, "containers": [container], **spec})

    async def get(self, name: str) -> Object | None:
        return await self.client.find(PODS, name, "default")

    async def until(self, name: str, holds: Callable[[Object], Any], *, seconds: float = 30) -> Object:
        last: Object | None = None
        for _ in range(int(seconds * 50)):
            last = await self.get(name)
            if last is not None and holds(last):
                return last
            await asyncio.sleep(0.02)
        raise AssertionError(f"{name} did not reach the expected state: {last and last.get('status')}")

    async def phase(self, name: str, phase: str, *, seconds: float = 30) -> Object:
        return await self.until(name, lambda pod: (pod.get("status") or {}).get("phase") == phase, seconds=seconds)

    async def gone(self, name: str, *, seconds: float = 30) -> None:
        for _ in range(int(seconds * 50)):
            if await self.get(name) is None:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{name} still exists")

    async def log(self, name: str, **query: str) -> str:
        pod = await self.get(name)
        assert pod
        agent = self.plane.agent
        assert agent
        streams = NodeStreams(agent.context.settings.pods)
        pieces = [piece async for piece in streams.logs(pod, query.get("container", "main"), LogOptions())]
        return b"".join(pieces).decode()

    async def events(self, name: str) -> list[str]:
        return [event["reason"] for event in await self._about(name)]

    async def messages(self, name: str) -> dict[str, str]:
        """The last message of each event reason about a pod."""
        return {event["reason"]: event["message"] for event in await self._about(name)}

    async def _about(self, name: str) -> list[Object]:
        assert self.plane.agent
        await self.plane.agent.context.recorder.flush()
        listing = await self.client.list(EVENTS, "default")
        about = [event for event in listing.items if event["involvedObject"]["name"] == name]
        return sorted(about, key=lambda event: (event["firstTimestamp"], int(event["metadata"]["resourceVersion"])))


@contextlib.asynccontextmanager
async def running_node(state: Path, *, python: str = "") -> AsyncIterator[RunningNode]:
    settings = PlaneSettings(state=state, port=0, node=True, node_name="here", python=python)
    try:
        async with Plane(settings) as plane:
            assert plane.agent
            await asyncio.wait_for(plane.agent.ready.wait(), 30)
            yield RunningNode(plane)
    finally:
        await stop_pods(settings.state / "node")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with running_node(tmp_path / "state") as running:
        yield running
