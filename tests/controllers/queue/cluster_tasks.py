"""Runs controllers on a real API server that has their CustomResourceDefinitions."""

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


class Runnable(Protocol):
    async def run(self) -> None: ...


async def install_definitions(client: Client, *definitions: Object) -> None:
    for definition in definitions:
        try:
            await client.create(DEFINITIONS, definition)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
    for definition in definitions:
        name = definition["metadata"]["name"]
        while not has_true_condition(await client.get(DEFINITIONS, name), "Established"):
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running(client: Client, controller: Runnable, informers: InformerFactory) -> AsyncIterator[None]:
    """Runs the controller and the informers inside the context, and closes the client at its end."""
    tasks = [asyncio.create_task(controller.run()), asyncio.create_task(informers.run())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await client.close()
        await asyncio.sleep(0.05)  # aborted connections close in the next turns of the event loop
