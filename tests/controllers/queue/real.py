"""Parts of ours on a real API server that serves the kinds they look after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory

DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


class Part(Protocol):
    async def run(self) -> None: ...


async def define(client: Client, *definitions: Object) -> None:
    for one in definitions:
        try:
            await client.create(DEFINITIONS, one)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
    for one in definitions:
        while not has_true_condition(await client.get(DEFINITIONS, one["metadata"]["name"]), "Established"):
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running(client: Client, part: Part, informers: InformerFactory) -> AsyncIterator[None]:
    """Both, until the end; then the client is closed."""
    tasks = [asyncio.create_task(part.run()), asyncio.create_task(informers.run())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await client.close()
        await asyncio.sleep(0.25)  # TLS connections take a moment to close
