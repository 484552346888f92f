"""A client, or its transport, as a context manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import Connection


@asynccontextmanager
async def open_client(connection: Connection, name: str) -> AsyncIterator[Client]:
    """Yield a client and close it at the end. `name` is its user agent and its field manager."""
    client = Client(HttpTransport(connection, user_agent=name), manager=name)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def open_transport(
    connection: Connection, name: str, *, headers: Mapping[str, str] | None = None
) -> AsyncIterator[HttpTransport]:
    """Yield a transport, for what is no request of a client, and close it at the end."""
    transport = HttpTransport(connection, user_agent=name, headers=headers)
    try:
        yield transport
    finally:
        await transport.close()
