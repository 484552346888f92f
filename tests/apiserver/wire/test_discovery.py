"""Discovery documents, compared word for word with a real API server's."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.kubernetes import Server

from torchyard.api.builtins import builtin_resources
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.resources import Resource, Subresource
from torchyard.apiserver.wire import discovery

# A real server keeps these in an older version, for the sake of what it once was.
KEPT_OLDER = ("apiextensions.k8s.io", "resource.k8s.io", "storage.k8s.io")
AGGREGATED = {"Accept": discovery.content_type("v2")}


def served() -> list[Resource]:
    """The resources of a real API server without extensions, which serve the metrics."""
    return [item for item in builtin_resources() if item.group != "metrics.k8s.io"]


GROUPS = {item.group for item in served()}


def widgets(group: str, version: str, *, subresources: bool = False) -> Resource:
    gvk = GroupVersionKind(group, version, "Widget")
    scale = GroupVersionKind("autoscaling", "v1", "Scale")
    below = {"status": Subresource("status", gvk, ("get",)), "scale": Subresource("scale", scale, ("get",))}
    return Resource(
        group=group,
        version=version,
        plural="widgets",
        singular="widget",
        kind="Widget",
        namespaced=True,
        verbs=("get", "list", "watch"),
        short_names=("wd",),
        categories=("all",),
        subresources=below if subresources else {},
        storage_version="v1",
        storage_group=group,
        custom=object(),
    )


@pytest.mark.cluster
@pytest.mark.parametrize("core", [True, False])
def test_the_aggregated_document_is_a_real_servers(core: bool, kube_bare: Server) -> None:
    real = kube_bare.admin.get("/api" if core else "/apis", headers=AGGREGATED).json
    # other tests define kinds there
    real["items"] = [item for item in real["items"] if item["metadata"].get("name", "") in GROUPS]
    assert discovery.aggregated(served(), core=core) == real


@pytest.mark.cluster
def test_the_list_of_groups_is_a_real_servers(kube_bare: Server) -> None:
    real = kube_bare.admin.get("/apis").json
    real["groups"] = [group for group in real["groups"] if group["name"] in GROUPS]
    assert discovery.api_groups(served()) == real


@pytest.mark.cluster
@pytest.mark.parametrize("group", sorted(GROUPS - {""}))
def test_a_group_and_its_resources_are_a_real_servers(group: str, kube_bare: Server) -> None:
    assert discovery.api_group(served(), group) == kube_bare.admin.get(f"/apis/{group}").json
    for version in sorted({item.version for item in served() if item.group == group}):
        real = kube_bare.admin.get(f"/apis/{group}/{version}").json
        ours = discovery.api_resources(served(), group, version)
        assert ours is not None
        if group in KEPT_OLDER:
            for item in (*ours["resources"], *real["resources"]):
                item.pop("storageVersionHash", None)
        assert ours == real


@pytest.mark.cluster
def test_the_core_group_is_a_real_servers(kube_bare: Server) -> None:
    assert discovery.api_resources(served(), "", "v1") == kube_bare.admin.get("/api/v1").json
    real = kube_bare.admin.get("/api").json
    assert discovery.api_versions(real["serverAddressByClientCIDRs"][0]["serverAddress"]) == real


def names(document: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(item["metadata"]["name"], [entry["version"] for entry in item["versions"]]) for item in document["items"]]


def test_custom_groups_follow_by_name_with_the_stable_versions_first() -> None:
    everything = [
        *builtin_resources(),
        *(widgets("b.example.com", version) for version in ("v1alpha1", "v1beta2", "v1", "v1beta1", "v10")),
        widgets("a.example.com", "v1"),
    ]
    *_, before, first, second, last = names(discovery.aggregated(everything, core=False))
    assert before[0] == "flowcontrol.apiserver.k8s.io"
    assert first == ("a.example.com", ["v1"])
    assert second == ("b.example.com", ["v10", "v1", "v1beta2", "v1beta1", "v1alpha1"])
    assert last[0] == "metrics.k8s.io"
    group = discovery.api_group(everything, "b.example.com")
    assert group is not None
    assert group["preferredVersion"] == {"groupVersion": "b.example.com/v10", "version": "v10"}


def test_versions_that_are_not_kubernetes_versions_come_last_by_name() -> None:
    assert sorted(["foo", "v1alpha1", "bar", "v2"], key=discovery.stability, reverse=True) == [
        *("v2", "v1alpha1", "bar", "foo")
    ]


def test_a_custom_resource_has_its_full_response_kind() -> None:
    document = discovery.aggregated([widgets("example.com", "v1", subresources=True)], core=False)
    resource = document["items"][0]["versions"][0]["resources"][0]
    own = {"group": "example.com", "version": "v1", "kind": "Widget"}
    assert resource["responseKind"] == own
    assert [entry["responseKind"] for entry in resource["subresources"]] == [
        own,
        {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    ]


def test_the_hash_of_a_stored_kind_is_upstreams() -> None:
    # as a real server answered for a CRD of that name
    listed = discovery.api_resources([widgets("b.example.com", "v1")], "b.example.com", "v1")
    assert listed is not None
    assert listed["resources"][0]["storageVersionHash"] == "c+ufeAyjVs8="


def test_an_unserved_group_version_has_no_document() -> None:
    assert discovery.api_group(builtin_resources(), "example.com") is None
    assert discovery.api_group(builtin_resources(), "") is None
    assert discovery.api_resources(builtin_resources(), "apps", "v9") is None


V2, V2BETA1 = discovery.content_type("v2"), discovery.content_type("v2beta1")


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (f"{V2},{V2BETA1},application/json", "v2"),
        (f"{V2BETA1},application/json", "v2beta1"),
        (f"application/json, {V2}", None),
        ("application/json", None),
        ("*/*", None),
        ("", None),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", None),
        ("application/json; g=apidiscovery.k8s.io; v=v2beta1; as=APIGroupDiscoveryList", "v2beta1"),
    ],
)
def test_the_format_that_a_client_prefers_is_chosen(accept: str, version: str | None) -> None:
    assert discovery.accepted(accept) == version


def test_an_entity_tag_changes_with_the_document() -> None:
    assert discovery.etag(b"a") == discovery.etag(b"a") != discovery.etag(b"b")
