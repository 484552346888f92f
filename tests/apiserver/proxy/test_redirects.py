"""Redirects from the path of a proxy to the one with a slash behind it."""

from __future__ import annotations

from pathlib import Path

from torchyard.api.gvr import PODS, SERVICE_ACCOUNTS
from torchyard.apiserver.access.authentication import MASTERS, User
from torchyard.apiserver.request.request import Query, Request
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

ADMIN = User("admin", groups=(MASTERS,))


async def test_a_client_in_the_process_gets_the_redirect_of_others(tmp_path: Path) -> None:
    settings = PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)
    async with Plane(settings) as plane:
        client = plane.client("test")
        await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")
        spec = {"containers": [{"name": "main", "image": "busybox"}]}
        pod = await client.create(PODS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        pod["status"] |= {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}
        await client.update(PODS, pod, subresource="status")
        path = "/api/v1/namespaces/default/pods/web:80/%70roxy"
        response = await plane.server.handle(Request("GET", path, Query("a=b%26c"), {}, b"", ADMIN))
    assert response.proxied is not None
    location = dict(response.proxied.headers)["Location"]
    assert location == "/api/v1/namespaces/default/pods/web:80/proxy/?a=b%26c"
