"""Cases that random writes rarely produce: a real kube-apiserver has the same objects, managed fields and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.apiserver.verbs.kinds import CONFIG_MAP, DEPLOYMENT, POD
from tests.apiserver.verbs.real import Compared
from tests.support.http import JSON_PATCH, MERGE, STRATEGIC
from tests.support.kubernetes import Server

from torchyard.api.objects import Object

pytestmark = pytest.mark.cluster

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.fixture
def config(kube_bare: Server) -> Compared:
    """A ConfigMap that exists."""
    target = Compared(kube_bare.admin, CONFIG_MAP)
    target.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"a": "1"}}, "creator")
    return target


def deployment(**container: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {},
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "a", "image": "x:1", **container}]},
            },
        },
    }


def in_container(**fields: Any) -> Object:
    return {"spec": {"template": {"spec": {"containers": [{"name": "a", **fields}]}}}}


def test_the_oldest_updaters_are_merged_when_there_are_more_than_ten(config: Compared) -> None:
    for number in range(14):
        config.patch(MERGE, {"data": {f"k{number}": "x"}}, f"updater-{number:02}")
    managers = [entry["manager"] for entry in config.live["metadata"]["managedFields"]]
    assert len(managers) == 10
    assert "ancient-changes" in managers


@pytest.mark.parametrize("wiped", [[], [{}]])
def test_a_wiped_record_begins_again_with_the_first_apply(config: Compared, wiped: list[Object]) -> None:
    config.update({"metadata": {"managedFields": wiped}}, "wiper")
    assert "managedFields" not in config.live["metadata"]
    config.patch(MERGE, {"data": {"b": "2"}}, "reader")
    assert "managedFields" not in config.live["metadata"]
    config.apply({"data": {"b": "2"}}, "applier")
    managers = {entry["manager"] for entry in config.live["metadata"]["managedFields"]}
    assert managers == {"applier", "before-first-apply"}


def test_a_client_may_rewrite_the_record(config: Compared) -> None:
    entry = {
        "manager": "other",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {".": {}}}, "x:unknown": {}},
    }
    config.update({"metadata": {"managedFields": [entry]}}, "rewriter")
    config.apply({"data": {"b": "2"}}, "other")
    assert config.live["data"] == {"b": "2"}


@pytest.mark.parametrize(
    "change",
    [{"operation": "Remove"}, {"fieldsType": "FieldsV2"}, {"apiVersion": ""}, {"fieldsV1": {"nocolon": {}}}],
)
def test_a_malformed_record_is_ignored(config: Compared, change: Object) -> None:
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    config.update({"metadata": {"managedFields": [{**entry, **change}]}, "data": {"a": "2"}}, "rewriter")


def test_a_record_cannot_be_rewritten_through_a_subresource(kube_bare: Server) -> None:
    target = Compared(kube_bare.admin, DEPLOYMENT)
    target.create(deployment(), "creator")
    target.update({"metadata": {"managedFields": []}, "status": {"replicas": 1}}, "controller", "status")
    assert len(target.live["metadata"]["managedFields"]) == 2


def test_conflicts_name_every_field_and_manager(config: Compared) -> None:
    config.patch(MERGE, {"data": {"b": "1", "c": "1"}}, "second")
    config.apply({"data": {"d": "1"}}, "third")
    config.apply({"data": {"a": "9", "b": "9", "c": "9", "d": "9"}}, "fourth")
    assert config.refused == 1
    config.apply({"data": {"a": "9"}}, "fourth")
    assert config.refused == 2
    config.apply({"data": {"a": "9", "b": "9", "c": "9", "d": "9"}}, "fourth", force=True)
    owners = {entry["manager"]: entry["fieldsV1"] for entry in config.live["metadata"]["managedFields"]}
    assert owners == {"fourth": {"f:data": {f"f:{key}": {} for key in "abcd"}}, "creator": {"f:data": {}}}


def test_conflicts_name_list_items_and_subresources(kube_bare: Server) -> None:
    target = Compared(kube_bare.admin, DEPLOYMENT)
    target.create(deployment(ports=[{"containerPort": 80, "protocol": "TCP", "name": "p"}], args=["x"]), "creator")
    target.apply(in_container(image="x:2", args=["y"], ports=[{"containerPort": 80, "name": "q"}]), "applier")
    target.patch(MERGE, {"status": {"replicas": 1}}, "controller", "status")
    target.apply({"status": {"replicas": 2}}, "applier", "status")
    assert target.refused == 2


def test_items_that_share_their_key_are_owned_as_one(kube_bare: Server) -> None:
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "B", "value": "1"}]
    target = Compared(kube_bare.admin, DEPLOYMENT)
    target.create(deployment(env=twice), "creator")
    target.apply(in_container(env=[{"name": "B", "value": "1"}, {"name": "C", "value": "1"}]), "first")
    target.apply(in_container(env=[{"name": "A", "value": "1"}]), "second", force=True)
    target.patch(MERGE, in_container(image="x:1", env=[*twice, {"name": "A", "value": "3"}]), "third")
    target.patch(MERGE, in_container(image="x:1", env=[*twice, {"name": "A", "value": "4"}]), "fourth")
    target.patch(MERGE, in_container(image="x:1", env=twice[1:]), "fifth")


def test_kubectl_may_go_from_client_side_to_server_side_apply(kube_bare: Server) -> None:
    target = Compared(kube_bare.admin, CONFIG_MAP)
    first = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": target.name}, "data": {"a": "1", "b": "1"}}
    annotated = {"annotations": {LAST_APPLIED: json.dumps(first)}}
    target.create({**first, "metadata": annotated}, "kubectl-client-side-apply")
    target.apply({"data": {"a": "2", "b": "2"}}, "not-kubectl")
    assert target.refused == 1
    target.apply({"data": {"a": "2"}}, "kubectl")
    assert target.refused == 1
    assert json.loads(target.live["metadata"]["annotations"][LAST_APPLIED])["data"] == {"a": "2"}
    target.patch(MERGE, {"data": {"b": "9"}}, "editor")
    target.apply({"data": {"a": "2", "b": "2"}}, "kubectl")
    assert target.refused == 2
    target.apply({"metadata": {"annotations": {LAST_APPLIED: "x"}}, "data": {"a": "3"}}, "kubectl", force=True)


def test_fields_are_given_up_by_not_applying_them_any_more(kube_bare: Server) -> None:
    target = Compared(kube_bare.admin, DEPLOYMENT)
    target.apply(deployment(env=[{"name": "A", "value": "1"}], workingDir="/x"), "first")
    target.apply(in_container(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]), "second")
    target.apply(deployment(), "first")
    assert "workingDir" not in target.live["spec"]["template"]["spec"]["containers"][0]
    target.apply({"metadata": {"labels": {"x": "y"}}}, "second")
    assert "env" not in target.live["spec"]["template"]["spec"]["containers"][0]
    target.apply({"metadata": {"labels": {}}}, "second")
    target.apply({}, "second")
    assert "labels" not in target.live["metadata"]


@pytest.mark.parametrize("then", [{}, {"metadata": {"labels": {}}}, {"metadata": {"labels": {"c": "3"}}}])
def test_unowned_fields_go_or_stay_with_their_parents(kube_bare: Server, then: Object) -> None:
    target = Compared(kube_bare.admin, CONFIG_MAP)
    target.apply({"metadata": {"labels": {"a": "1", "c": "3"}}, "data": {"a": "1"}}, "applier")
    mine = target.live["metadata"]["managedFields"]
    target.patch(MERGE, {"metadata": {"labels": {"b": "2"}}, "data": {"b": "2"}}, "editor")
    target.update({"metadata": {"managedFields": mine}}, "forgetter")
    target.apply(then, "applier")


def test_nulls_are_owned_and_leave_what_others_have_beneath(kube_bare: Server) -> None:
    target = Compared(kube_bare.admin, DEPLOYMENT)
    target.create(deployment(env=[{"name": "A", "value": "1"}]), "creator")
    target.apply({"metadata": {"labels": None}, "spec": {"paused": None, "minReadySeconds": None}}, "applier")
    target.apply(in_container(env=None, args=None), "applier")


POD_PATCHES: list[tuple[str, Any]] = [
    (STRATEGIC, {"spec": {"containers": [{"image": "y"}]}}),
    (STRATEGIC, {"spec": {"containers": ["y"]}}),
    (STRATEGIC, {"spec": {"containers": [{"name": "a", "$patch": "zap"}]}}),
    (STRATEGIC, {"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}),
    (STRATEGIC, {"spec": {"containers": [{"$patch": "delete"}]}}),
    (STRATEGIC, {"spec": {"$patch": "zap"}}),
    (STRATEGIC, {"spec": {"$retainKeys": "x"}}),
    (STRATEGIC, {"spec": {"$retainKeys": ["x"], "nodeName": "y"}}),
    (STRATEGIC, {"spec": {"$setElementOrder/containers": "x"}}),
    (
        STRATEGIC,
        {"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a", "image": "z"}]}},
    ),
    (STRATEGIC, {"spec": {"$setElementOrder/containers": [{"x": "b"}], "containers": [{"name": "a"}]}}),
    (STRATEGIC, {"spec": {"$setElementOrder": [{"name": "b"}]}}),
    (STRATEGIC, {"spec": {"$setElementOrder/nope": [1]}}),
    (STRATEGIC, {"metadata": {"$deleteFromPrimitiveList": ["a"]}}),
    (STRATEGIC, {"metadata": {"finalizers": ["z.z/z", 3]}}),
    (STRATEGIC, {"metadata": {"finalizers": [["z.z/z"]]}}),
    (STRATEGIC, {"metadata": {"labels": {"a": {"b": "c"}}}}),
    (STRATEGIC, {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}),
    (STRATEGIC, {"metadata": {"annotations": {"$patch": "replace", "q": "r"}}}),
    (STRATEGIC, {"metadata": {"annotations": {"a": None, "q": "r"}}}),
    (STRATEGIC, {"metadata": {"finalizers": []}}),
    (MERGE, {"metadata": {"labels": {"a": None, "b": "c"}, "annotations": None}}),
    (JSON_PATCH, [{"op": "test", "path": "/metadata/name", "value": "zz"}]),
    (JSON_PATCH, [{"op": "replace", "path": "/metadata/nope", "value": 1}]),
    (JSON_PATCH, [{"op": "remove", "path": "/metadata/nope"}]),
    (JSON_PATCH, [{"op": "add", "path": "/a/b/c", "value": 1}]),
    (JSON_PATCH, [{"op": "add", "path": "", "value": 1}]),
    (JSON_PATCH, [{"op": "zap", "path": "/x"}]),
    (JSON_PATCH, [{"op": 3, "path": "/x"}]),
    (JSON_PATCH, [{"op": "copy", "from": "/a/b/c", "path": "/x"}]),
    (JSON_PATCH, [{"op": "remove", "path": "/metadata/labels/l", "bogus": 1}]),
    (JSON_PATCH, {"op": "add"}),
    (JSON_PATCH, [1]),
    (JSON_PATCH, "x"),
    (JSON_PATCH, [{"op": "test", "path": "/metadata/name", "value": "x"}] * 10_001),
    (MERGE, [1]),
    (MERGE, None),
    (STRATEGIC, [1]),
    (STRATEGIC, None),
]


@pytest.mark.parametrize(("type", "patch"), POD_PATCHES, ids=lambda item: str(item)[:60])
def test_odd_patches_are_accepted_or_rejected_alike(kube_bare: Server, type: str, patch: Any) -> None:
    target = Compared(kube_bare.admin, POD)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"l": "1"}}, "spec": _pod_spec()}
    target.create(pod, "creator")
    target.patch(type, patch, "patcher")


def _pod_spec() -> Object:
    """Everything that defaulting and admission would add."""
    return {
        "containers": [
            {
                "name": "a",
                "image": "x:1",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{fields}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for fields in ("not-ready", "unreachable")
        ],
    }


APPLIED: list[Object] = [
    {"bogus": 1},
    {"spec": {"bogus": 1}},
    {"spec": {"containers": [{"name": "a", "nope": {"a": 1}}]}},
    {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}},
    {"spec": {"containers": [None]}},
    {"spec": {"containers": [3]}},
    {"spec": {"containers": {"a": 1}}},
    {"spec": {"containers": "a"}},
    {"spec": {"containers": [{"name": "a", "image": 3}]}},
    {"spec": {"containers": [{"name": "a", "image": True}]}},
    {"spec": {"containers": [{"name": "a", "image": ["x", None, {"y": 1.5}]}]}},
    {
        "spec": {
            "containers": [{"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]}]
        }
    },
    {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": ["x"]}}}]}},
    {"spec": {"hostNetwork": "yes"}},
    {"spec": {"activeDeadlineSeconds": "3"}},
    {"spec": {"securityContext": 3}},
    {"metadata": {"labels": {"a": 1}}},
    {"metadata": {"labels": ["a"]}},
    {"metadata": {"finalizers": ["a.b/c", "a.b/c"]}},
    {"metadata": {"finalizers": [None]}},
    {"metadata": {"finalizers": [{}]}},
    {"metadata": {"finalizers": [[]]}},
    {"metadata": {"managedFields": []}},
    {"kind": "Service"},
    {"apiVersion": "a/b"},
    {"apiVersion": "", "kind": ""},
]


@pytest.mark.parametrize("contents", APPLIED, ids=str)
def test_objects_of_the_wrong_shape_cannot_be_applied(kube_bare: Server, contents: Object) -> None:
    target = Compared(kube_bare.admin, POD)
    target.apply(contents, "applier")
    assert target.refused == 1


def test_items_are_distinguished_by_default_keys(kube_bare: Server) -> None:
    target = Compared(kube_bare.admin, DEPLOYMENT)
    target.apply(deployment(ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]), "first")
    target.apply(in_container(ports=[{"containerPort": 80, "name": "p"}]), "second")
    names = ["A&B", "A<B>", 'A"B', "A\\B", "a/b"]
    target.apply(in_container(env=[{"name": name, "value": "1"} for name in names]), "third")
    target.apply(in_container(env=[{"name": name, "value": "2"} for name in names]), "fourth")
    assert target.refused == 1
