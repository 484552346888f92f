"""Redirects from the path of a proxy to the one with a slash behind it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.apiserver.proxy.pods import create_pod_with_address

from torchyard.api.group_version import GroupVersionKind
from torchyard.apiserver.access.authentication import MASTERS, User
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.subresources.node_proxy import proxy_node
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

ADMIN = User("admin", groups=(MASTERS,))


async def test_a_name_of_a_node_cannot_end_the_head_of_the_redirect() -> None:
    async def review(*_: Any) -> None:
        pass

    registry: Any = SimpleNamespace(
        lookup=SimpleNamespace(get=lambda *_: {}), streams=object(), admission=SimpleNamespace(review=review)
    )
    subresource = SimpleNamespace(gvk=GroupVersionKind("", "v1", "NodeProxyOptions"))
    name = "http:node:1\r\n\r\n<p>"
    ctx: Any = SimpleNamespace(name=name, resource=SimpleNamespace(subresources={"proxy": subresource}))
    resources: Any = SimpleNamespace(registry=registry)
    request = Request("GET", f"/api/v1/nodes/{name}/proxy", Query("c=d"), {}, b"", ADMIN)
    response = await proxy_node(resources, ctx, request)
    assert response.proxied is not None
    location = dict(response.proxied.headers)["Location"]
    assert location == "/api/v1/nodes/http:node:1%0D%0A%0D%0A%3Cp%3E/proxy/?c=d"


async def test_a_client_in_the_process_gets_the_redirect_of_others(tmp_path: Path) -> None:
    settings = PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)
    async with Plane(settings) as plane:
        await create_pod_with_address(plane.client("test"))
        path = "/api/v1/namespaces/default/pods/web:80/%70roxy"
        response = await plane.server.handle(Request("GET", path, Query("a=b%26c"), {}, b"", ADMIN))
    assert response.proxied is not None
    location = dict(response.proxied.headers)["Location"]
    assert location == "/api/v1/namespaces/default/pods/web:80/proxy/?a=b%26c"
