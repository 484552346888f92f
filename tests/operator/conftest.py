"""A real API server with the operator's installation, and an account that may do what its role says and no more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.support.kubernetes import Server

from torchyard.kube.client import Client, Ref
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import Connection, load
from torchyard.operator.certificates import WEBHOOKS
from torchyard.operator.install import install
from torchyard.operator.manifests import Installation
from torchyard.operator.operator import Operator
from torchyard.operator.settings import NAME, NAMESPACE, WEBHOOK, Settings

Object = dict[str, Any]
PODS = Ref("", "v1", "pods")
NAMESPACES = Ref("", "v1", "namespaces", namespaced=False)
ACCOUNTS = Ref("", "v1", "serviceaccounts")
PATIENCE = 60.0
INSTALLATION = Installation("torchyard/operator:test", replicas=0)


@dataclass(frozen=True)
class Installed:
    admin: Client
    account: Connection  # of the operator's service account

    async def until(self, what: Callable[[], Any], *, seconds: float = PATIENCE) -> Any:
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            answer = await what()
            if answer:
                return answer
            assert asyncio.get_running_loop().time() < deadline, "it did not happen in time"
            await asyncio.sleep(0.05)

    async def namespace(self, name: str) -> str:
        await self.admin.create(NAMESPACES, {"metadata": {"name": name}})
        await self.until(lambda: self.admin.find(ACCOUNTS, "default", name))
        return name

    async def pods(self, namespace: str, count: int) -> list[Object]:
        found: list[Object] = []

        async def there() -> bool:
            found[:] = (await self.admin.list(PODS, namespace)).items
            return len(found) == count

        await self.until(there)
        return found


@pytest.fixture
async def installed(kube: Server) -> AsyncIterator[Installed]:
    connection = load(kube.kubeconfig)
    admin = Client(HttpTransport(connection, user_agent="test"), manager="test")
    if await admin.find(WEBHOOKS, WEBHOOK) is not None:  # as another test left it
        await admin.delete(WEBHOOKS, WEBHOOK)
    await install(admin, INSTALLATION, lambda _: None)
    # No API server here can reach a service's address; the test of the webhook gives it another.
    await admin.delete(WEBHOOKS, WEBHOOK)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = await admin.create(ACCOUNTS, request, NAMESPACE, name=NAME, subresource="token")
    account = replace(connection, token=answer["status"]["token"], certificate=None, key=None)
    yield Installed(admin, account)  # it stays: the next test's installation makes everything as it should be
    await admin.close()
    await asyncio.sleep(0.25)  # as aiohttp asks: TLS connections take a moment to close


@contextlib.asynccontextmanager
async def running(installed: Installed, **changes: Any) -> AsyncIterator[Operator]:
    """The operator under its own account, ready."""
    operator = started(installed, **changes)
    task = asyncio.create_task(operator.run())
    try:

        async def ready() -> bool:
            if task.done():
                task.result()
            return not operator.health.problem

        await installed.until(ready)
        yield operator
    finally:
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0.25)


def started(installed: Installed, **changes: Any) -> Operator:
    settings = Settings(host="127.0.0.1", webhook=False, metrics_port=0, health_port=0, webhook_port=0)
    settings = replace(settings, **changes)
    return Operator(installed.account, settings)
