"""A whole plane in the process of a test, and a measure of how long its event loop stands still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from torchyard.apiserver.access.authentication import MASTERS, User
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

ADMIN = User("admin", groups=(MASTERS,))
_INTERVAL = 0.002


class LoopMonitor:
    """Measures the longest computation of the event loop, in CPU time of its thread: a busy machine does not count."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._start = 0.0

    def reset(self) -> None:
        """Forget what was measured, and what the loop computes just now."""
        self.longest, self._start = 0.0, time.thread_time()

    async def run(self) -> None:
        while True:
            self._start = time.thread_time()
            await asyncio.sleep(_INTERVAL)
            self.longest = max(self.longest, time.thread_time() - self._start)


class PlaneClient:
    """Sends requests to a plane without a connection."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.monitor = LoopMonitor()

    async def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        user: User = ADMIN,
    ) -> Response:
        return await self.plane.server.handle(Request(method, path, Query(query), headers or {}, body, user))


@asynccontextmanager
async def plane_client(directory: Path, *, controllers: str = "*") -> AsyncIterator[PlaneClient]:
    settings = PlaneSettings(state=directory / "state", port=0, controllers=controllers, node=False)
    async with Plane(settings) as plane:
        client = PlaneClient(plane)
        monitor = asyncio.create_task(client.monitor.run())
        try:
            yield client
        finally:
            monitor.cancel()
