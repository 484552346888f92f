"""Points 24 and 26: garbage collection, and deletion of namespaces and definitions."""

from __future__ import annotations

import pytest
from tests.conformance.objects import Definitions, Space, config_map, crd, custom, owner, path, pod, service
from tests.support.http import Client
from tests.support.waiting import eventually

HOLD = "test.torchyard.dev/hold"


@pytest.mark.point(24)
def test_an_object_is_collected_when_all_its_owners_are_gone(space: Space) -> None:
    first, second = (space.make("configmaps", config_map(name)) for name in ("first", "second"))
    space.make("configmaps", config_map("child", ownerReferences=[owner(first), owner(second)]))
    space.api.delete(space.path("configmaps", "first"))
    eventually(
        lambda: [o["name"] for o in space.get("configmaps", "child")["metadata"]["ownerReferences"]] == ["second"],
        "the reference to the absent owner dropped",
    )
    space.api.delete(space.path("configmaps", "second"))
    eventually(lambda: space.gone("configmaps", "child"), "the dependent gone with its last owner")


@pytest.mark.point(24)
def test_an_owner_with_another_uid_is_absent(space: Space) -> None:
    created = space.make("configmaps", config_map("owner"))
    wrong = owner(created) | {"uid": "00000000-0000-4000-8000-000000000000"}
    space.make("configmaps", config_map("child", ownerReferences=[wrong]))
    eventually(lambda: space.gone("configmaps", "child"), "the dependent of an absent owner gone")
    assert not space.gone("configmaps", "owner")


@pytest.mark.point(24)
def test_an_owner_in_another_namespace_counts_as_absent_and_an_event_says_so(api: Client, space: Space) -> None:
    elsewhere = api.post("/api/v1/namespaces/default/configmaps", config_map(generateName="elsewhere-")).json
    space.make("configmaps", config_map("child", ownerReferences=[owner(elsewhere)]))
    eventually(lambda: space.gone("configmaps", "child"), "the dependent of a foreign owner gone")

    def warned() -> bool:
        events = api.get(space.path("events")).json["items"]
        return any(e["reason"] == "OwnerRefInvalidNamespace" for e in events)

    eventually(warned, "an OwnerRefInvalidNamespace event")


@pytest.mark.point(24)
def test_dependents_of_a_cluster_scoped_owner_live_and_go_with_it(api: Client, space: Space) -> None:
    volume = {
        "metadata": {"generateName": "owner-"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/nowhere"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    created = api.post("/api/v1/persistentvolumes", volume).json
    space.make("configmaps", config_map("child", ownerReferences=[owner(created)]))
    absent = {**created, "metadata": {**created["metadata"], "uid": "00000000-0000-4000-8000-000000000000"}}
    space.make("configmaps", config_map("orphan", ownerReferences=[owner(absent)]))
    eventually(lambda: space.gone("configmaps", "orphan"), "the collector has looked at later objects")
    assert not space.gone("configmaps", "child")
    api.delete(path("persistentvolumes", created["metadata"]["name"]))
    api.patch(path("persistentvolumes", created["metadata"]["name"]), {"metadata": {"finalizers": None}})
    eventually(lambda: space.gone("configmaps", "child"), "the dependent gone")


@pytest.mark.point(26)
def test_a_terminating_namespace_deletes_its_contents_and_accepts_nothing_new(api: Client, space: Space) -> None:
    space.make("services", service("s"))
    space.make("configmaps", config_map("held", finalizers=[HOLD]))
    at = path("namespaces", space.name)
    answer = api.delete(at)
    assert (answer.status, answer.json["kind"]) == (200, "Namespace")
    assert answer.json["status"]["phase"] == "Terminating"
    assert answer.json["metadata"]["deletionTimestamp"]
    refused = api.post(space.path("configmaps"), config_map("late"))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        f'configmaps "late" is forbidden: unable to create new content in namespace {space.name} '
        "because it is being terminated"
    )
    assert refused.causes == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {space.name} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    eventually(lambda: space.gone("services", "s"), "the contents deleted")
    eventually(lambda: "deletionTimestamp" in space.get("configmaps", "held")["metadata"], "the held one marked")
    assert api.get(at).json["spec"]["finalizers"] == ["kubernetes"]
    api.patch(space.path("configmaps", "held"), {"metadata": {"finalizers": None}})
    eventually(lambda: api.get(at).status == 404, "the namespace gone")


@pytest.mark.point(26)
def test_a_missing_namespace_is_not_found_and_the_four_system_ones_exist(api: Client) -> None:
    missing = api.post("/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert (missing.status, missing.reason) == (404, "NotFound")
    assert missing.message == 'namespaces "nowhere" not found'
    assert missing.json["details"] == {"name": "nowhere", "kind": "namespaces"}
    assert api.get("/api/v1/namespaces/nowhere/pods").json["items"] == []
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        result = api.get(path("namespaces", name)).json
        assert result["metadata"]["labels"]["kubernetes.io/metadata.name"] == name
        assert result["status"]["phase"] == "Active"
        assert result["spec"]["finalizers"] == ["kubernetes"]
    for name in ("default", "kube-system", "kube-public"):
        refused = api.delete(path("namespaces", name))
        assert (refused.status, refused.reason) == (403, "Forbidden")
        assert refused.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


@pytest.mark.point(26)
def test_the_name_label_of_a_namespace_cannot_be_removed(api: Client, space: Space) -> None:
    at = path("namespaces", space.name)
    assert api.get(at).json["metadata"]["labels"] == {"kubernetes.io/metadata.name": space.name}
    answer = api.patch(at, {"metadata": {"labels": None}})
    assert answer.json["metadata"]["labels"] == {"kubernetes.io/metadata.name": space.name}


@pytest.mark.point(26)
def test_deleting_a_definition_removes_its_objects_first(api: Client, space: Space, crds: Definitions) -> None:
    name = crds.create(crd("gadgets"))["metadata"]["name"]
    gadgets = space.path("gadgets", group="test.torchyard.dev/v1")
    api.post(gadgets, custom("Gadget", "a", metadata={"finalizers": [HOLD]}))
    answer = api.delete(path("customresourcedefinitions", name))
    assert answer.json["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    eventually(lambda: "deletionTimestamp" in api.get(f"{gadgets}/a").json["metadata"], "its objects deleted")
    assert crds.condition(name, "Terminating") == "True"
    refused = api.post(gadgets, custom("Gadget", "late"))
    assert (refused.status, refused.reason) == (403, "Forbidden"), refused
    assert "create not allowed while custom resource definition is terminating" in refused.message
    api.patch(f"{gadgets}/a", {"metadata": {"finalizers": None}})
    eventually(lambda: api.get(path("customresourcedefinitions", name)).status == 404, "the definition gone")
    eventually(lambda: api.get(gadgets).status == 404, "the path gone")


@pytest.mark.point(24)
def test_a_dependent_pod_is_deleted_with_its_owner(space: Space) -> None:
    created = space.make("configmaps", config_map("owner"))
    space.make("pods", pod("p", ownerReferences=[owner(created, controller=True)]))
    space.api.delete(space.path("configmaps", "owner"), {"propagationPolicy": "Background"})
    eventually(lambda: space.gone("pods", "p"), "the pod gone")
