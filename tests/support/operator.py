"""The operator on a real API server, under a service account that has exactly the rights of its role."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.support.kubernetes import Server
from tests.support.waiting import first_answer

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Client
from torchyard.kube.connect import open_client
from torchyard.kube.kubeconfig import Connection, load
from torchyard.operator.certificates import MUTATING, VALIDATING
from torchyard.operator.clock import local
from torchyard.operator.install import install
from torchyard.operator.manifests import Installation, objects
from torchyard.operator.operator import Operator
from torchyard.operator.settings import (
    DEFAULTS_WEBHOOK,
    JOBSET_DEFAULTS_WEBHOOK,
    NAME,
    NAMESPACE,
    TRAINJOB_DEFAULTS_WEBHOOK,
    WEBHOOK,
    OperatorSettings,
)

PODS = GroupVersionResource("", "v1", "pods")
NAMESPACES = GroupVersionResource("", "v1", "namespaces", namespaced=False)
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
TIMEOUT = 60.0
_WEBHOOKS = (
    (VALIDATING, WEBHOOK),
    (MUTATING, DEFAULTS_WEBHOOK),
    (MUTATING, JOBSET_DEFAULTS_WEBHOOK),
    (MUTATING, TRAINJOB_DEFAULTS_WEBHOOK),
)
INSTALLATION = Installation("torchyard/operator:test", replicas=0)


@dataclass(frozen=True)
class Installed:
    admin: Client
    account: Connection  # of the operator's service account
    to: Installation

    async def until(self, condition: Callable[[], Any], *, seconds: float = TIMEOUT) -> Any:
        return await first_answer(condition, seconds=seconds, pause=0.05)

    async def namespace(self, name: str) -> str:
        await self.admin.create(NAMESPACES, {"metadata": {"name": name}})
        await self.until(lambda: self.admin.find(ACCOUNTS, "default", name))
        return name

    async def pods(self, namespace: str, count: int) -> list[Object]:
        items: list[Object] = []

        async def has_count() -> bool:
            items[:] = (await self.admin.list(PODS, namespace)).items
            return len(items) == count

        await self.until(has_count)
        return items


_CLOSING_SECONDS = 0.05  # aborted connections close in the next turns of the event loop


@contextlib.asynccontextmanager
async def installation(kube: Server, to: Installation = INSTALLATION) -> AsyncIterator[Installed]:
    connection = load(kube.kubeconfig)
    async with open_client(connection, "test") as admin:
        await _forget_webhooks(admin)  # another test may have left some
        while ((await admin.find(NAMESPACES, NAMESPACE)) or {"metadata": {}})["metadata"].get("deletionTimestamp"):
            await asyncio.sleep(0.05)
        await install(admin, to, lambda _: None)
        await _forget_webhooks(admin)  # no webhook before an operator serves it
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        answer = await admin.create(ACCOUNTS, request, NAMESPACE, name=NAME, subresource="token")
        account = replace(connection, token=answer["status"]["token"], certificate=None, key=None)
        yield Installed(admin, account, to)  # it stays: the next test's installation makes everything as it should be
    await asyncio.sleep(_CLOSING_SECONDS)


@contextlib.asynccontextmanager
async def running(installed: Installed, **changes: Any) -> AsyncIterator[Operator]:
    """Run the operator under its own account; with `webhook=True` the API server calls it for every job."""
    if changes.get("webhook"):
        for obj in objects(installed.to):
            for ref, name in _WEBHOOKS:
                if (obj["kind"].lower() + "s", obj["metadata"]["name"]) == (ref.plural, name):
                    await installed.admin.patch(ref, name, obj, kind="apply", force=True)
    operator = started(installed, **changes)
    task = asyncio.create_task(operator.run())
    try:

        async def ready() -> bool:
            if task.done():
                task.result()
            return not operator.health.problem

        await installed.until(ready)
        if changes.get("webhook"):
            await _be_asked(installed, operator)
        yield operator
    finally:
        if changes.get("webhook"):
            await _forget_webhooks(installed.admin)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(_CLOSING_SECONDS)


def started(installed: Installed, **changes: Any) -> Operator:
    clock = changes.pop("clock", local)
    settings = OperatorSettings(
        host="127.0.0.1", webhook=False, metrics_port=0, health_port=0, webhook_port=0, status_port=0, samples_port=0
    )
    return Operator(installed.account, replace(settings, **changes), clock=clock)


async def _be_asked(installed: Installed, operator: Operator) -> None:
    """Point the webhooks at the operator's own address: the API server cannot reach a service's address here."""
    for ref, name in _WEBHOOKS:
        webhook = await installed.admin.find(ref, name)
        if webhook is not None:
            patch = []
            for place, hook in enumerate(webhook["webhooks"]):
                url = f"https://localhost:{operator.ports['webhook']}{hook['clientConfig']['service']['path']}"
                at = f"/webhooks/{place}/clientConfig"
                patch += [{"op": "remove", "path": f"{at}/service"}, {"op": "add", "path": f"{at}/url", "value": url}]
            await installed.admin.patch(ref, name, patch, kind="json")
    namespace = installed.to.watched[0] if installed.to.watched else "default"

    async def refused() -> bool:
        nothing = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "0-bad"}}
        body = {**nothing, "spec": {"pytorchReplicaSpecs": {"Master": {"template": {}}}}}
        try:
            await installed.admin.raw("POST", f"{JOBS.path(namespace)}?dryRun=All", body)
        except StatusError as error:
            return error.status == 422 and "DNS-1035" in error.message
        return False

    await installed.until(refused)


async def _forget_webhooks(admin: Client) -> None:
    for ref, name in _WEBHOOKS:
        if await admin.find(ref, name) is not None:
            await admin.delete(ref, name)


def denied(operator: Operator) -> list[str]:
    """The requests of the operator's account that the server rejected; there must be none."""
    return re.findall(r'rest_client_requests_total\{code="403".*', operator.metrics.text().decode())
