"""Points 19 to 23 and 25: what DELETE returns, finalizers, grace periods, propagation, collections."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.conformance.differences import expected
from tests.conformance.objects import (
    Definitions,
    Object,
    Space,
    claim,
    config_map,
    crd,
    custom,
    deployment,
    job,
    lease,
    owner,
    path,
    pod,
    service,
)
from tests.support.http import Client
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

HOLD = "test.torchyard.dev/hold"

RETURN_THE_OBJECT: list[tuple[str, Object]] = [
    ("services", service("a")),
    ("persistentvolumeclaims", claim("a")),
    ("serviceaccounts", {"metadata": {"name": "a"}}),
    ("resourcequotas", {"metadata": {"name": "a"}}),
    ("podtemplates", {"metadata": {"name": "a"}, "template": {"spec": pod()["spec"]}}),
    ("pods", pod("a")),
]
RETURN_A_STATUS: list[tuple[str, Object]] = [
    ("configmaps", config_map("a")),
    ("secrets", {"metadata": {"name": "a"}}),
    ("deployments", deployment("a")),
    ("leases", lease("a")),
    ("endpoints", {"metadata": {"name": "a"}}),
    ("limitranges", {"metadata": {"name": "a"}, "spec": {"limits": []}}),
    ("roles", {"metadata": {"name": "a"}, "rules": []}),
]


@pytest.mark.point(19)
@pytest.mark.parametrize(("resource", "obj"), RETURN_THE_OBJECT, ids=[item[0] for item in RETURN_THE_OBJECT])
def test_delete_returns_the_object_for_these_kinds(space: Space, resource: str, obj: Object) -> None:
    created = space.make(resource, obj)
    answer = space.api.delete(space.path(resource, "a"), {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    assert answer.status == 200
    assert answer.json["kind"] == created["kind"]
    assert answer.json["metadata"]["uid"] == created["metadata"]["uid"]


@pytest.mark.point(19)
@pytest.mark.parametrize(
    ("resource", "obj"), RETURN_A_STATUS, ids=[return_a_statu[0] for return_a_statu in RETURN_A_STATUS]
)
def test_delete_returns_a_status_for_these_kinds(space: Space, resource: str, obj: Object) -> None:
    created = space.make(resource, obj)
    answer = space.api.delete(space.path(resource, "a"), {"propagationPolicy": "Background"})
    assert answer.status == 200
    group = created["apiVersion"].rpartition("/")[0]
    details = {"name": "a", "kind": resource, "uid": created["metadata"]["uid"]} | ({"group": group} if group else {})
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
    assert space.gone(resource, "a")


@pytest.mark.point(19)
def test_delete_of_cluster_scoped_kinds_returns_object_or_status_by_kind(
    api: Client, crds: Definitions, space: Space
) -> None:
    classes = path("storageclasses")
    api.post(classes, {"metadata": {"name": "conformance"}, "provisioner": "test.torchyard.dev/none"})
    assert api.delete(f"{classes}/conformance").json["kind"] == "StorageClass"
    crds.create(crd("gadgets"))
    gadgets = space.path("gadgets", group="test.torchyard.dev/v1")
    api.post(gadgets, custom("Gadget", "a"))
    assert api.delete(f"{gadgets}/a").json["kind"] == "Status"


@pytest.mark.point(19)
def test_delete_of_a_missing_object_is_not_found_and_orphan_dependents_false_returns_202(space: Space) -> None:
    missing = space.api.delete(space.path("configmaps", "nobody"))
    assert (missing.status, missing.reason) == (404, "NotFound")
    space.make("configmaps", config_map("a", finalizers=[HOLD]))
    answer = space.api.delete(space.path("configmaps", "a"), {"orphanDependents": False})
    assert answer.status == 202
    space.api.patch(space.path("configmaps", "a"), {"metadata": {"finalizers": None}})


@pytest.mark.point(20)
def test_finalizers_hold_an_object_until_the_last_is_removed(space: Space) -> None:
    space.make("configmaps", config_map("a", finalizers=[HOLD, f"{HOLD}-2"]))
    at = space.path("configmaps", "a")
    answer = space.api.delete(at)
    assert (answer.status, answer.json["kind"]) == (200, "ConfigMap")
    marked = answer.json["metadata"]
    assert marked["deletionTimestamp"]
    assert marked["deletionGracePeriodSeconds"] == 0
    again = space.api.delete(at)
    assert (again.status, again.json["metadata"]["deletionTimestamp"]) == (200, marked["deletionTimestamp"])
    assert again.json["metadata"]["resourceVersion"] == marked["resourceVersion"]
    with space.api.watch(
        space.path("configmaps"),
        query={"resourceVersion": marked["resourceVersion"], "fieldSelector": "metadata.name=a"},
    ) as watch:
        one_left = space.api.patch(at, {"metadata": {"finalizers": [HOLD]}})
        assert (one_left.status, one_left.json["metadata"]["finalizers"]) == (200, [HOLD])
        assert watch.next()["type"] == "MODIFIED"
        live = space.get("configmaps", "a")
        del live["metadata"]["finalizers"]
        assert space.api.put(at, live).status == 200
        event = watch.next()
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["deletionTimestamp"] == marked["deletionTimestamp"]
    assert space.gone("configmaps", "a")


@pytest.mark.point(20)
def test_no_finalizer_may_be_added_while_terminating(space: Space) -> None:
    space.make("configmaps", config_map("a", finalizers=[HOLD]))
    at = space.path("configmaps", "a")
    space.api.delete(at)
    refused = space.api.patch(at, {"metadata": {"finalizers": [HOLD, f"{HOLD}-new"]}})
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert refused.causes[0]["reason"] == "FieldValueForbidden"
    assert refused.causes[0]["field"] == "metadata.finalizers"
    assert "no new finalizers can be added if the object is being deleted" in refused.message
    space.api.patch(at, {"metadata": {"finalizers": None}})


def running_pod(space: Space, name: str, *, phase: str = "Running", grace: int | None = None) -> Object:
    """A pod that is assigned to a node, and so is not removed at once."""
    spec: Object = {"nodeName": "nowhere"} | ({} if grace is None else {"terminationGracePeriodSeconds": grace})
    space.make("pods", pod(name, spec=spec))
    answer = space.api.patch(space.path("pods", name, "status"), {"status": {"phase": phase}})
    assert answer.status == 200, answer
    created: Object = answer.json
    return created


@pytest.mark.point(21)
def test_a_running_pod_gets_its_grace_period_and_is_removed_by_the_node(space: Space) -> None:
    created = running_pod(space, "p")
    answer = space.api.delete(space.path("pods", "p"))
    metadata = answer.json["metadata"]
    assert answer.status == 200
    assert metadata["deletionGracePeriodSeconds"] == 30
    remaining = datetime.fromisoformat(metadata["deletionTimestamp"]) - datetime.now(UTC)
    assert 20 < remaining.total_seconds() <= 31
    assert metadata["generation"] == created["metadata"]["generation"] + 1
    # The node agent ends it: grace 0, on the very pod it means.
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": created["metadata"]["uid"]}}
    assert space.api.delete(space.path("pods", "p"), options).status == 200
    assert space.gone("pods", "p")


@pytest.mark.point(21)
def test_the_grace_period_comes_from_the_options_or_the_spec_and_only_shrinks(space: Space) -> None:
    running_pod(space, "spec", grace=7)
    assert space.api.delete(space.path("pods", "spec")).json["metadata"]["deletionGracePeriodSeconds"] == 7
    running_pod(space, "options", grace=7)
    at = space.path("pods", "options")
    assert space.api.delete(at, {"gracePeriodSeconds": 60}).json["metadata"]["deletionGracePeriodSeconds"] == 60
    assert space.api.delete(at, {"gracePeriodSeconds": 20}).json["metadata"]["deletionGracePeriodSeconds"] == 20
    assert space.api.delete(at, {"gracePeriodSeconds": 50}).json["metadata"]["deletionGracePeriodSeconds"] == 20
    assert space.api.delete(at).json["metadata"]["deletionGracePeriodSeconds"] == 20
    running_pod(space, "negative")
    negative = space.api.delete(space.path("pods", "negative"), {"gracePeriodSeconds": -3})
    assert negative.json["metadata"]["deletionGracePeriodSeconds"] == 1
    running_pod(space, "query")
    by_query = space.api.delete(space.path("pods", "query"), query={"gracePeriodSeconds": 9})
    assert by_query.json["metadata"]["deletionGracePeriodSeconds"] == 9


@pytest.mark.point(21)
def test_a_pod_without_a_node_is_deleted_at_once(space: Space) -> None:
    space.make("pods", pod("unscheduled"))
    for name, phase in (("done", "Succeeded"), ("failed", "Failed")):
        running_pod(space, name, phase=phase)
    for name in ("unscheduled", "done", "failed"):
        answer = space.api.delete(space.path("pods", name))
        assert (answer.status, answer.json["metadata"]["deletionGracePeriodSeconds"]) == (200, 0)
        assert space.gone("pods", name)


def family(space: Space, **reference: bool) -> None:
    """A ConfigMap `parent`, and a ConfigMap `child` that it owns."""
    parent = space.make("configmaps", config_map("parent"))
    space.make("configmaps", config_map("child", ownerReferences=[owner(parent, **reference)]))


@pytest.mark.point(22)
def test_background_removes_the_owner_first_and_the_dependents_after(space: Space) -> None:
    family(space)
    answer = space.api.delete(space.path("configmaps", "parent"), {"propagationPolicy": "Background"})
    assert (answer.status, answer.json["status"]) == (200, "Success")
    assert space.gone("configmaps", "parent")
    eventually(lambda: space.gone("configmaps", "child"), "the dependent gone")


@pytest.mark.point(22)
def test_foreground_waits_for_the_dependents_that_block(space: Space) -> None:
    family(space, blockOwnerDeletion=True)
    space.api.patch(space.path("configmaps", "child"), {"metadata": {"finalizers": [HOLD]}})
    answer = space.api.delete(space.path("configmaps", "parent"), {"propagationPolicy": "Foreground"})
    assert answer.json["metadata"]["finalizers"] == ["foregroundDeletion"]
    eventually(
        lambda: "deletionTimestamp" in space.get("configmaps", "child")["metadata"], "the dependent marked first"
    )
    assert not space.gone("configmaps", "parent")
    space.api.patch(space.path("configmaps", "child"), {"metadata": {"finalizers": None}})
    eventually(lambda: space.gone("configmaps", "parent"), "the owner gone after its dependent")
    assert space.gone("configmaps", "child")


@pytest.mark.point(22)
def test_orphan_leaves_the_dependents_without_the_reference(space: Space) -> None:
    family(space)
    answer = space.api.delete(space.path("configmaps", "parent"), {"propagationPolicy": "Orphan"})
    assert answer.json["metadata"]["finalizers"] == ["orphan"]
    eventually(lambda: space.gone("configmaps", "parent"), "the owner gone")
    assert "ownerReferences" not in space.get("configmaps", "child")["metadata"]


@pytest.mark.point(22)
def test_invalid_propagation_policies_are_rejected(server: Server, space: Space) -> None:
    space.make("configmaps", config_map("a"))
    at = space.path("configmaps", "a")
    for options in ({"propagationPolicy": "Sideways"}, {"propagationPolicy": "Orphan", "orphanDependents": True}):
        refused = space.api.delete(at, options)
        assert (refused.status, refused.reason) == (422, "Invalid"), refused
        assert refused.causes[0]["field"] == "propagationPolicy", refused
    wrong = space.api.delete(at, {"gracePeriodSeconds": "soon"})
    assert wrong.status == expected(server, "delete-options-of-a-wrong-type"), wrong
    assert not space.gone("configmaps", "a")


@pytest.mark.point(23)
def test_deleting_a_job_without_a_policy_orphans_its_pods_with_a_warning(space: Space) -> None:
    created = space.make("jobs", job("j", spec={"suspend": True}))
    space.make("configmaps", config_map("child", ownerReferences=[owner(created)]))
    answer = space.api.delete(space.path("jobs", "j"))
    assert answer.status == 200
    assert answer.json["metadata"]["finalizers"] == ["orphan"]
    assert answer.warnings == [
        '299 - "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove '
        'them or set propagationPolicy=Orphan to suppress this warning"'
    ]
    eventually(lambda: space.gone("jobs", "j"), "the job gone")
    assert "ownerReferences" not in space.get("configmaps", "child")["metadata"]


@pytest.mark.point(23)
def test_everything_else_without_a_policy_is_background(space: Space) -> None:
    created = space.make("deployments", deployment("d"))
    space.make("configmaps", config_map("child", ownerReferences=[owner(created)]))
    answer = space.api.delete(space.path("deployments", "d"))
    assert (answer.json["kind"], answer.warnings) == ("Status", [])
    eventually(lambda: space.gone("configmaps", "child"), "the dependent gone")


@pytest.mark.point(25)
def test_delete_collection_honours_selectors_and_returns_a_list(space: Space) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        space.make("secrets", {"metadata": {"name": name, "labels": {"app": app}}})
    answer = space.api.delete(space.path("secrets"), query={"labelSelector": "app=x"})
    assert (answer.status, answer.json["kind"]) == (200, "SecretList")
    assert {item["metadata"]["name"] for item in answer.json["items"]} == {"a", "b"}
    remaining = {item["metadata"]["name"] for item in space.api.get(space.path("secrets")).json["items"]}
    assert remaining == {"c"}
    space.make("secrets", {"metadata": {"name": "d"}})
    assert space.api.delete(space.path("secrets"), query={"fieldSelector": "metadata.name=d"}).status == 200
    assert not space.gone("secrets", "c")
    assert space.gone("secrets", "d")


@pytest.mark.point(25)
def test_delete_collection_respects_finalizers_and_propagation(space: Space) -> None:
    space.make("configmaps", config_map("held", finalizers=[HOLD], labels={"mine": "1"}))
    created = space.make("configmaps", config_map("owner", labels={"mine": "1"}))
    space.make("configmaps", config_map("child", ownerReferences=[owner(created)]))
    answer = space.api.delete(
        space.path("configmaps"), {"propagationPolicy": "Orphan"}, query={"labelSelector": "mine"}
    )
    assert answer.status == 200
    assert "deletionTimestamp" in space.get("configmaps", "held")["metadata"]
    eventually(lambda: space.gone("configmaps", "owner"), "the owner gone")
    assert "ownerReferences" not in space.get("configmaps", "child")["metadata"]
    eventually(
        lambda: space.get("configmaps", "held")["metadata"]["finalizers"] == [HOLD], "the orphan finalizer handled"
    )
    space.api.patch(space.path("configmaps", "held"), {"metadata": {"finalizers": None}})


@pytest.mark.point(25)
def test_kinds_without_delete_collection_reject_it(api: Client) -> None:
    refused = api.delete(path("namespaces"))
    assert (refused.status, refused.reason) == (405, "MethodNotAllowed")


@pytest.mark.point(25)
def test_a_dry_run_delete_deletes_nothing(space: Space) -> None:
    created = space.make("configmaps", config_map("a"))
    since = {"resourceVersion": created["metadata"]["resourceVersion"], "fieldSelector": "metadata.name=a"}
    with space.api.watch(space.path("configmaps"), query=since) as watch:
        assert space.api.delete(space.path("configmaps", "a"), {"dryRun": ["All"]}).status == 200
        assert space.api.delete(space.path("configmaps", "a"), query={"dryRun": "All"}).status == 200
        assert space.api.delete(space.path("configmaps"), query={"dryRun": "All"}).status == 200
        changed = space.api.patch(space.path("configmaps", "a"), {"data": {"a": "2"}}).json
        assert watch.next() == {"type": "MODIFIED", "object": changed}
