"""A get that is answered with the stored bytes has the response that the router gives it in the general way."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from multidict import CIMultiDict
from tests.conformance.objects import crd, custom

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import ALL_AUTHENTICATED, MASTERS, User
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response
from torchyard.kube.client import Client
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
BOATS = GroupVersionResource("test.torchyard.dev", "v1", "boats")
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings")
ADMIN = User("admin", groups=(MASTERS, ALL_AUTHENTICATED))
READER = User("reader", groups=(ALL_AUTHENTICATED,))
NAMES = ("a", "default", "configmaps", "status", "finalize", "watch", "missing", "namespaces")
SEGMENTS = (*NAMES, "", "..", "%61", "pods", "boats", "events", "bindings", "selfsubjectreviews", "nodes", "api", "v1")
ROOTS = (
    *("/api/v1", "/apis/test.torchyard.dev/v1", "/apis/events.k8s.io/v1", "/apis/metrics.k8s.io/v1beta1"),
    *("/apis/apps/v1", "/api", "/apis", "", "//api/v1", "/apis/authentication.k8s.io/v1", "/api/v1/watch"),
)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)) as plane:
        client = plane.client("test")
        await client.create(DEFINITIONS, crd("boats"))
        for name in ("a", "default", "status", "configmaps", "finalize", "watch"):
            await client.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"name": name}}, "default")
        await client.create(BOATS, custom("Boat", "a"), "default")
        await allow(client, ["a"])
        yield plane


async def allow(client: Client, names: list[str]) -> None:
    """Let the reader get ConfigMaps of these names."""
    rule: Object = {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": names}
    await client.create(ROLES, {"metadata": {"name": "reader"}, "rules": [rule]}, "default")
    reference = {"apiGroup": ROLES.group, "kind": "Role", "name": "reader"}
    subject = {"kind": "User", "name": READER.name, "apiGroup": ROLES.group}
    binding: Object = {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": [subject]}
    await client.create(BINDINGS, binding, "default")


async def general(plane: Plane, path: str, user: User, accept: str = "") -> Response:
    headers = CIMultiDict({"Accept": accept} if accept else {})
    return await plane.server.handle(Request("GET", path, Query(), headers, b"", user))


async def check(plane: Plane, path: str, user: User, accept: str = "") -> bool:
    """Compare both responses; returns whether the stored bytes were found."""
    stored = plane.server.get_stored(path, user, accept)
    if stored is None:
        return False
    response = await general(plane, path, user, accept)
    assert (response.status, response.body, response.content_type) == (200, stored.data, "application/json"), path
    assert not response.headers
    assert not response.warnings
    return True


async def test_random_paths_have_the_same_response_in_both_ways(plane: Plane) -> None:
    rng, matches = random.Random(7), 0
    for _ in range(20_000):
        path = "/".join([rng.choice(ROOTS), *rng.choices(SEGMENTS, k=rng.randrange(5))])
        if rng.random() < 0.3:
            path = f"/api/v1/namespaces/{rng.choice(NAMES)}/configmaps/{rng.choice(NAMES)}"
        matches += await check(plane, path, rng.choice((ADMIN, READER)))
    assert matches > 100


async def test_an_object_is_found_whatever_was_asked_before(plane: Plane) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    for before in (path, f"{path}/", f"{path}/a/status", f"{path}/missing", f"{path}//a", f"{path}/a/"):
        plane.server.get_stored(before, ADMIN, "")
        assert await check(plane, f"{path}/a", ADMIN), before
        assert plane.server.get_stored(f"{path}/a/status", ADMIN, "") is None


async def test_only_allowed_objects_are_found_and_a_change_of_the_roles_counts_at_once(plane: Plane) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    assert await check(plane, f"{path}/a", READER)
    assert plane.server.get_stored(f"{path}/status", READER, "") is None
    assert (await general(plane, f"{path}/status", READER)).status == 403
    await plane.client("test").delete(BINDINGS, "reader", "default")
    assert plane.server.get_stored(f"{path}/a", READER, "") is None


async def test_only_json_is_found(plane: Plane) -> None:
    path = "/api/v1/namespaces/default/configmaps/a"
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for accept in ("application/json", "*/*", "application/vnd.kubernetes.protobuf,application/json"):
        assert await check(plane, path, ADMIN, accept), accept
    for accept in ("application/yaml", table, f"{table},application/json", "text/html"):
        assert plane.server.get_stored(path, ADMIN, accept) is None, accept


async def test_a_custom_object_is_found_until_its_definition_changes(plane: Plane) -> None:
    path = "/apis/test.torchyard.dev/v1/namespaces/default/boats/a"
    client = plane.client("test")
    assert await check(plane, path, ADMIN)
    schema = {"type": "object", "properties": {"knots": {"type": "integer", "default": 3}}}
    version = {**crd("boats")["spec"]["versions"][0], "schema": {"openAPIV3Schema": schema}}
    await client.patch(DEFINITIONS, "boats.test.torchyard.dev", {"spec": {"versions": [version]}})
    response = await general(plane, path, ADMIN)
    assert b'"knots":3' in bytes(response.body if isinstance(response.body, bytes) else b"")
    assert plane.server.get_stored(path, ADMIN, "") is None
    await client.delete(DEFINITIONS, "boats.test.torchyard.dev")
    assert plane.server.get_stored(path, ADMIN, "") is None
