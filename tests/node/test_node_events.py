"""Events of the node."""

from __future__ import annotations

import asyncio
from pathlib import Path

from torchyard.api.gvr import EVENTS
from torchyard.node.events import NodeEventRecorder
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "1"}, "spec": {"containers": [{"name": "main"}]}}


async def test_a_repeated_event_is_counted_and_created_again_after_the_server_deleted_it(tmp_path: Path) -> None:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        recorder = NodeEventRecorder(client, node="n")
        task = asyncio.create_task(recorder.run())
        for _ in range(2):
            for count in (1, 2):
                recorder.pod(POD, "BackOff", "why", container="main", kind="Warning")
                await recorder.flush()
                (event,) = (await client.list(EVENTS, "default")).items
                assert (event["count"], event["involvedObject"]["fieldPath"]) == (count, "spec.containers{main}")
            await client.delete(EVENTS, event["metadata"]["name"], "default")
        task.cancel()
        await asyncio.wait([task])
