"""What extension API servers get of requests, and what they can do to this server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from multidict import CIMultiDict
from tests.support.extension_server import GROUP, RESOURCES, ROOT, VERSION, ExtensionServer
from tests.support.waiting import TIMEOUT, first_answer

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import SERVICES
from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import MASTERS, User
from torchyard.apiserver.aggregation.availability import LOCAL
from torchyard.apiserver.aggregation.controller import AvailabilityController
from torchyard.apiserver.aggregation.resource_list import listed_resources
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

API_SERVICES = GroupVersionResource("apiregistration.k8s.io", "v1", "apiservices", namespaced=False)
ADMIN = User("admin", groups=(MASTERS,))
THINGS = f"{ROOT}/namespaces/default/things"
AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
WRONG_ENTRIES: list[Any] = [
    *(7, {"kind": "Nameless"}, {"name": 7}),
    *({**RESOURCES[0], "name": name, name: 1} for name in ("verbs", "shortNames", "categories", "kind", "group")),
    *({**RESOURCES[0], "verbs": verbs} for verbs in ("get", ["get", 1], {"get": True})),
    *({**RESOURCES[0], name: []} for name in ("namespaced", "singularName", "version")),
]


@asynccontextmanager
async def plane_with(directory: Path, port: int, host: str = "localhost") -> AsyncIterator[Plane]:
    """A plane with an APIService whose server is on this port; ready when the server has been checked."""
    settings = PlaneSettings(state=directory / "state", port=0, controllers="-*", node=False)
    async with Plane(settings) as plane:
        client = plane.client("test")
        spec: Object = {"type": "ExternalName", "externalName": host}
        await client.create(SERVICES, {"metadata": {"name": "extension"}, "spec": spec}, "default")
        spec = {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "service": {"name": "extension", "namespace": "default", "port": port},
            "insecureSkipTLSVerify": True,
        }
        await client.create(API_SERVICES, {"metadata": {"name": f"{VERSION}.{GROUP}"}, "spec": spec})
        await first_answer(lambda: conditions(plane), "the condition")
        yield plane


async def conditions(plane: Plane) -> list[Object]:
    api_service = await plane.client("test").get(API_SERVICES, f"{VERSION}.{GROUP}")
    return list((api_service.get("status") or {}).get("conditions") or ())


async def send(
    plane: Plane, method: str, target: str, user: User = ADMIN, headers: Mapping[str, str] | None = None
) -> tuple[Response, bytes]:
    """Send a request as the console and the controllers do, without a connection."""
    path, _, query = target.partition("?")
    request = Request(method, path, Query(query), CIMultiDict(headers or {}), b"", user)
    response = await plane.server.handle(request)
    if isinstance(response.body, bytes):
        return response, response.body
    return response, b"".join([chunk async for chunk in response.body])


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    extension = ExtensionServer(tmp_path / "extension", "extension.default.svc")
    try:
        async with plane_with(tmp_path, extension.port) as plane:
            yield plane
    finally:
        extension.close()


async def test_a_server_gets_the_path_and_the_query_that_were_authorized(plane: Plane) -> None:
    received = []
    for target in (
        f"{THINGS}?labelSelector=a%3Db&dryRun=All",
        f"{THINGS}/%23",
        f"{THINGS}/#",
        f"{THINGS}/%3Fa",
        f"{THINGS}/a%252Fb",
        f"{THINGS}/%C3%A4",
    ):
        _, body = await send(plane, "DELETE", target)
        received.append(orjson.loads(body)["path"].removeprefix(THINGS))
    assert received == ["?dryRun=All&labelSelector=a%3Db", "/%23", "/%23", "/%3Fa", "/a%252Fb", "/%C3%A4"]


async def test_a_client_cannot_change_who_it_is(plane: Plane) -> None:
    named = "X-Remote-User, X-Remote-Group, X-Forwarded-Proto, Host"
    headers = {"Connection": named, "X-Remote-User": "mallory", "X-Remote-Extra-A": "b"}
    _, body = await send(plane, "GET", THINGS, headers=headers)
    passed = [(name, value) for name, value in orjson.loads(body)["headers"] if name.startswith("x-remote-")]
    assert passed == [("x-remote-user", "admin"), ("x-remote-group", MASTERS)]
    user = User("admin\r\nX-Remote-Group: others", groups=(MASTERS,))
    response, body = await send(plane, "GET", THINGS, user)
    reason = b'net/http: invalid header field value for "X-Remote-User"'
    assert (response.status, body) == (503, b"error trying to reach service: " + reason + b"\n")


async def test_pages_of_a_server_are_in_a_sandbox(plane: Plane) -> None:
    policies = []
    browser = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}
    for headers in ({"User-Agent": "kubectl/v1.34"}, browser, {**browser, "X-Forwarded-For": "127.0.0.1"}):
        response, _ = await send(plane, "GET", THINGS, headers=headers)
        assert response.proxied is not None
        policies.append(dict(response.proxied.headers).get("Content-Security-Policy", ""))
    assert (policies[0], policies[2]) == ("", ""), "a program, and a browser at `kubectl proxy`"
    assert policies[1].startswith("sandbox ") and "allow-same-origin" not in policies[1]


async def test_discovery_has_all_valid_entries_of_a_long_list(tmp_path: Path) -> None:
    entries = [*WRONG_ENTRIES, *({**RESOURCES[0], "name": f"things{number}"} for number in range(3000))]
    extension = ExtensionServer(tmp_path / "extension", "extension.default.svc", entries)
    try:
        async with plane_with(tmp_path, extension.port) as plane:
            response, body = await send(plane, "GET", "/apis", headers=AGGREGATED)
    finally:
        extension.close()
    assert response.status == 200
    groups = {item["metadata"]["name"]: item["versions"] for item in orjson.loads(body)["items"]}
    names = [resource["resource"] for resource in groups[GROUP][0]["resources"]]
    assert names == [f"things{number}" for number in range(3000)]


@pytest.mark.parametrize("entry", WRONG_ENTRIES)
def test_entries_with_fields_of_a_wrong_type_are_left_out(entry: Any) -> None:
    minimal = {"name": "things", "verbs": None}
    assert listed_resources(orjson.dumps({"resources": [entry, *RESOURCES, minimal]})) == [*RESOURCES, minimal]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"resources": 1}'])
def test_another_document_lists_no_resources(body: bytes) -> None:
    assert listed_resources(body) == []


async def test_a_name_that_cannot_be_looked_up_is_not_available(tmp_path: Path) -> None:
    host = f"{'a' * 64}.test"
    async with plane_with(tmp_path, 443, host) as plane:
        condition = (await conditions(plane))[0]
    assert (condition["status"], condition["reason"]) == ("False", "FailedDiscoveryCheck")
    assert condition["message"].endswith(f"dial tcp: lookup {host}: no such host")


async def test_a_condition_that_cannot_be_written_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StatusError(500, "InternalError", "failed calling webhook")

    monkeypatch.setattr("torchyard.apiserver.aggregation.controller.change_status", fail)
    resource = SimpleNamespace(find=lambda *_: SimpleNamespace())
    store = SimpleNamespace(listen=lambda *_: None)
    registry: Any = SimpleNamespace(lookup=None, store=store, catalog=resource, clock=lambda: datetime.now(UTC))
    unused: Any = None
    controller = AvailabilityController(registry, unused, unused, ADMIN)
    controller._check_soon("present")
    for name in ("present", "deleted"):
        await controller._write({"metadata": {"name": name}, "spec": {}}, LOCAL)
    assert list(controller._due) == ["present"]
    assert controller._due["present"] > asyncio.get_running_loop().time(), "it was tried again at once"


async def test_an_error_in_one_check_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Any = SimpleNamespace(lookup=None, store=SimpleNamespace(listen=lambda *_: None))
    unused: Any = None
    controller = AvailabilityController(registry, unused, unused, ADMIN)
    checked: asyncio.Queue[str] = asyncio.Queue()

    async def check(name: str) -> None:
        checked.put_nowait(name)
        if name == "broken":
            raise RuntimeError(name)

    monkeypatch.setattr(controller, "_check", check)
    running = asyncio.create_task(controller.run())
    try:
        for name in ("broken", "sound"):
            controller._check_soon(name)
            assert await asyncio.wait_for(checked.get(), TIMEOUT) == name
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()
