"""What a client finds at the first answer of a plane, before its controllers and its node run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.waiting import first_answer

from torchyard.api.group_version import GroupVersionResource
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


async def test_pods_and_jobs_can_be_created_and_the_node_can_be_waited_for(tmp_path: Path) -> None:
    at_ready: dict[str, Any] = {}

    def inspect(_url: str) -> None:
        registry = plane.registry
        store, catalog = registry.store, registry.catalog
        at_ready["accounts"] = [record.key for record in store.collection("/serviceaccounts/").all()]
        at_ready["nodes"] = [record.object() for record in store.collection("/nodes/").all()]
        at_ready["jobs"] = catalog.find("kubeflow.org", "v1", "pytorchjobs") is not None
        at_ready["workloads"] = catalog.find("kueue.x-k8s.io", "v1beta2", "workloads") is not None
        at_ready["parts"] = plane.supervisor.statuses()

    settings = PlaneSettings(state=tmp_path / "state", port=0, node=True, node_name="here")
    plane = Plane(settings, on_ready=inspect)
    async with plane:
        plane.stops_pods = True  # with the processes of its node
        parts = {status.part for status in plane.supervisor.statuses()}
    assert "/serviceaccounts/default/default" in at_ready["accounts"]
    (node,) = at_ready["nodes"]
    assert node["metadata"]["name"] == "here"
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["node.kubernetes.io/not-ready"]
    assert (at_ready["jobs"], at_ready["workloads"]) == (True, True)
    assert at_ready["parts"] == []
    assert {"node", "pytorchjob", "scheduler", "kueue"} <= parts


async def _is_gone(plane: Plane) -> bool:
    return await plane.client("test").find(DEFINITIONS, "pytorchjobs.kubeflow.org") is None


async def test_what_belongs_to_the_plane_is_restored_at_the_next_start(tmp_path: Path) -> None:
    """A role that was changed, after the first answer; a definition that is missing, before it."""
    settings = PlaneSettings(state=tmp_path / "state", port=0, controllers="pytorchjob")
    async with Plane(settings) as plane:
        client = plane.client("test")
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/torchyard-training-view"
        role = await client.raw("GET", path)
        await client.raw("PUT", path, {**role, "rules": []})
    async with Plane(settings) as plane:
        assert (await plane.client("test").raw("GET", path))["rules"] == role["rules"]
        definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pytorchjobs.kubeflow.org"
        await plane.client("test").raw("DELETE", definition)
        await first_answer(lambda: _is_gone(plane))  # its objects are deleted first
    served: list[bool] = []

    def look(_url: str) -> None:
        served.append(plane.registry.catalog.find("kubeflow.org", "v1", "pytorchjobs") is not None)

    plane = Plane(settings, on_ready=look)
    async with plane:
        assert served == [True]
