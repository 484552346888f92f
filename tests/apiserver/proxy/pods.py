"""Pods of planes without a node, for tests of what the API server proxies to them."""

from __future__ import annotations

from torchyard.api.gvr import PODS, SERVICE_ACCOUNTS
from torchyard.kube.client import Client


async def create_pod_with_address(client: Client) -> None:
    """The pod `web`, which has an address as if a node had started it."""
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    pod = await client.create(PODS, {"metadata": {"name": "web"}, "spec": spec}, "default")
    pod["status"] |= {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}
    await client.update(PODS, pod, subresource="status")
