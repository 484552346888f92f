"""PUT of a status: which kinds need a resourceVersion, and what becomes of the rest of the object."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from tests.api.differential.recorded import CASES
from tests.api.differential.verdict import resource_of
from tests.conformance.objects import crd, custom

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import PODS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
BOATS = GroupVersionResource("test.torchyard.dev", "v1", "boats")
# no finalizers of our own are needed, and no other objects
CONDITIONAL = ("apiservices", "poddisruptionbudgets", "validatingadmissionpolicies", "volumeattachments")
KINDS = (
    *CONDITIONAL,
    *("deployments", "flowschemas", "horizontalpodautoscalers", "jobs", "persistentvolumes", "replicationcontrollers"),
    *("resourceclaims", "servicecidrs"),
)
RESET = ("apiservices", "flowschemas", "resourceclaims", "servicecidrs", "validatingadmissionpolicies")


def _sample(plural: str) -> Object:
    return next(
        copy.deepcopy(case.obj)
        for name, case in CASES.items()
        if ": good: " in name and resource_of(case.obj).plural == plural
    )


class Server:
    def __init__(self, plane: Plane) -> None:
        self.transport = plane.client("test")._transport

    async def send(self, method: str, path: str, body: Object) -> tuple[int, Any]:
        response = await self.transport.request(method, path, body=orjson.dumps(body), content_type="application/json")
        return response.status, orjson.loads(response.body)

    async def create(self, obj: Object, **metadata: Any) -> tuple[str, Object]:
        """Create an object; returns its path and what the server answered."""
        resource = resource_of(obj)
        gvr = GroupVersionResource(resource.group, resource.version, resource.plural, namespaced=resource.namespaced)
        obj["metadata"] = {**obj["metadata"], **metadata}
        namespace = "default" if resource.namespaced else ""
        if resource.namespaced:
            obj["metadata"]["namespace"] = namespace
        status, created = await self.send("POST", gvr.path(namespace), obj)
        assert status == 201, created
        return gvr.path(namespace, created["metadata"]["name"]), created


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    state: Path = tmp_path_factory.mktemp("plane") / "state"
    async with Plane(PlaneSettings(state=state, port=0, controllers="-*", node=False)) as plane:
        await plane.client("test").create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")
        yield Server(plane)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("plural", KINDS)
async def test_a_status_without_a_version_is_refused_where_an_update_is(server: Server, plural: str) -> None:
    is_conditional = plural in CONDITIONAL
    path, created = await server.create(_sample(plural), labels={"own": "label"}, finalizers=["example.com/a"])
    for version in (None, "0"):
        unpinned = {**created, "metadata": {**created["metadata"], "resourceVersion": version}}
        for endpoint in (path, f"{path}/status"):
            status, answer = await server.send("PUT", endpoint, unpinned)
            assert status == (422 if is_conditional else 200), answer
            if status == 422:
                assert answer["details"]["causes"][0]["field"] == "metadata.resourceVersion"
    bare = {"name": created["metadata"]["name"], "resourceVersion": created["metadata"]["resourceVersion"]}
    status, written = await server.send("PUT", f"{path}/status", {**created, "metadata": bare})
    assert status == 200, written
    keeps = plural in (*RESET, "volumeattachments")
    assert (written["metadata"].get("finalizers") == ["example.com/a"]) is keeps
    assert (written["metadata"].get("labels") == {"own": "label"}) is (keeps or plural == "deployments")


async def test_the_status_of_custom_resources_needs_a_version(server: Server) -> None:
    status, definition = await server.send("POST", DEFINITIONS.path(), crd("boats"))
    assert status == 201
    definition["metadata"].pop("resourceVersion")
    path = DEFINITIONS.path("", definition["metadata"]["name"])
    assert (await server.send("PUT", f"{path}/status", definition))[0] == 422
    status, boat = await server.send("POST", BOATS.path("default"), custom("Boat", "a"))
    assert status == 201, boat
    del boat["metadata"]["resourceVersion"]
    assert (await server.send("PUT", BOATS.path("default", "a"), boat))[0] == 422


@pytest.mark.parametrize("plural", ["jobs", "replicationcontrollers"])
async def test_a_status_without_labels_and_spec_leaves_those_of_the_template(server: Server, plural: str) -> None:
    sample = _sample(plural)
    sample["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})["app"] = "x"
    path, created = await server.create(sample, name=f"labelled-{plural}")
    template = created["spec"]["template"]["metadata"]["labels"]
    for spec in ({}, {"spec": created["spec"]}):
        body = {"metadata": {"name": created["metadata"]["name"]}, "status": created["status"], **spec}
        status, written = await server.send("PUT", f"{path}/status", body)
        assert (status, written["metadata"]["labels"]) == (200, template), written


async def test_a_volume_has_the_time_of_its_last_phase(server: Server) -> None:
    path, created = await server.create(_sample("persistentvolumes"), name="phases")
    began = created["status"]["lastPhaseTransitionTime"]
    stated = "2020-01-01T00:00:00Z"

    async def put(**status: Any) -> Any:
        body = {"metadata": {"name": "phases"}, "status": status}
        code, written = await server.send("PUT", f"{path}/status", body)
        assert code == 200, written
        return written["status"].get("lastPhaseTransitionTime")

    assert await put(phase="Pending") == began
    assert await put(phase="Available", lastPhaseTransitionTime=stated) == stated
    assert await put(phase="Available") == stated
    now = await put(phase="Bound", lastPhaseTransitionTime=stated)
    assert now not in (None, stated)
    assert now >= began


def _pod(name: str) -> Object:
    resources = {"requests": {"cpu": "1", "memory": "1Mi"}}
    container = {"name": "c", "image": "i", "resources": resources}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


async def test_a_resize_may_not_add_remove_or_rename_a_container(server: Server) -> None:
    path, pod = await server.create(_pod("sized"))
    (container,) = pod["spec"]["containers"]
    for containers, field, detail in (
        ([container, {**container, "name": "d"}], "spec.containers", "may not be added or removed on resize"),
        ([{**container, "name": "d"}], "spec.containers[0].name", "may not be renamed or reordered on resize"),
    ):
        sent = {**pod, "spec": {**pod["spec"], "containers": containers}}
        status, answer = await server.send("PUT", f"{path}/resize", sent)
        assert status == 422, answer
        causes = {(cause["field"], cause["message"]) for cause in answer["details"]["causes"]}
        assert (field, f"Forbidden: containers {detail}") in causes
    container["resources"]["requests"]["cpu"] = "2"
    status, resized = await server.send("PUT", f"{path}/resize", pod)
    assert (status, resized["spec"]["containers"][0]["resources"]) == (200, container["resources"])


async def test_a_generated_name_is_validated_on_update(server: Server) -> None:
    path, pod = await server.create(_pod("prefixed"))
    for prefix, expected in (("a-", 200), ("Not_A_Name-", 422), ("a/b", 422)):
        sent = {**pod, "metadata": {**pod["metadata"], "resourceVersion": "", "generateName": prefix}}
        status, answer = await server.send("PUT", path, sent)
        assert status == expected, answer
        if status == 422:
            assert {cause["field"] for cause in answer["details"]["causes"]} == {"metadata.generateName"}


@pytest.mark.parametrize(("version", "expected"), [("v1", 201), ("v1beta1", 201), ("v2", 400)])
async def test_evictions_of_the_older_version_are_read(server: Server, version: str, expected: int) -> None:
    path, _ = await server.create(_pod(f"evicted-{version}"))
    eviction = {"apiVersion": f"policy/{version}", "kind": "Eviction", "metadata": {"name": f"evicted-{version}"}}
    status, answer = await server.send("POST", PODS.path("default", f"evicted-{version}", "eviction"), eviction)
    assert status == expected, answer
    assert path
