"""A client for as long as something is done with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import Connection


@asynccontextmanager
async def open_client(connection: Connection, name: str) -> AsyncIterator[Client]:
    """A client of this API server, closed at the end. `name`: who the server hears from, and notes as writer."""
    client = Client(HttpTransport(connection, user_agent=name), manager=name)
    try:
        yield client
    finally:
        await client.close()
