"""Pods that differ only in names, labels and environment variables: the tenth is as correct as the first.

Each case creates a pod in JSON several times with different values, and compares the last one with the same pod in
YAML, which never comes from a template.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conformance.objects import Object, Space, path, pod
from tests.support.http import JSON, Answer
from tests.support.waiting import eventually

from torchyard.apiserver.verbs.pod_template_cache import MAX_POD_BYTES, MAX_TEMPLATES

YAML = "application/yaml"
TIMES = 3

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "0d1e", "controller": True}
PLAIN = {"image": "busybox", "command": ["true"], "resources": {"limits": {"cpu": "1000m"}}}
CACHE = {"name": "cache", "emptyDir": {}}
MATCHING = {"topologyKey": "zone", "matchLabelKeys": ["index"], "labelSelector": {"matchLabels": {"app": "a"}}}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
REFERENCE = {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}

CASES: dict[str, Object] = {
    "as short as can be": {},
    "with limits and a command": {"container": PLAIN},
    "of a job": {"ownerReferences": [OWNER], "finalizers": ["batch.kubernetes.io/job-tracking"]},
    "with annotations": {"annotations": {"note": "x", "controller.kubernetes.io/pod-deletion-cost": "3"}},
    "with a long note": {"annotations": {"note": "x" * MAX_POD_BYTES}},
    "with volumes": {
        "spec": {"volumes": [CACHE]},
        "container": {"volumeMounts": [{"name": "cache", "mountPath": "/c"}]},
    },
    "without a token": {"spec": {"automountServiceAccountToken": False}},
    "with two containers": {
        "spec": {"initContainers": [{"name": "first", "image": "busybox:latest", "env": [{"name": "A", "value": "1"}]}]}
    },
    "that looks at itself": {"container": {"env": [REFERENCE, {"name": "EMPTY", "value": ""}]}},
    "with an affinity to its labels": {
        "spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [MATCHING]}}}
    },
    "spread by its labels": {"spec": {"topologySpreadConstraints": [{**SPREAD, "matchLabelKeys": ["index"]}]}},
    "behind a gate": {"spec": {"schedulingGates": [{"name": "example.com/wait"}]}},
    "with a volume of its own": {"spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": CLAIM}}]}},
    "with a name to be made": {"generateName": "made-"},
    "on the host's network": {"spec": {"hostNetwork": True}, "container": {"ports": [{"containerPort": 80}]}},
    "with a grace period that cannot be": {"spec": {"terminationGracePeriodSeconds": -1}},
}


def send(space: Space, obj: Object | bytes, media: str = JSON, **query: str) -> Answer:
    data = obj if isinstance(obj, bytes) else json.dumps(obj).encode()
    return space.api.post(space.path("pods"), data, query=query, headers={"Content-Type": media})


def variant(turn: int, changes: Object, name: str = "") -> Object:
    """One of many pods that differ in name, labels and environment variables."""
    created = pod(**changes)
    if "generateName" not in changes:
        created["metadata"]["name"] = name or f"p-{turn}"
    created["metadata"]["labels"] = {"app": "a", "index": str(turn)}
    container = created["spec"]["containers"][0]
    container["env"] = [
        {"name": "RANK", "value": str(turn)},
        {"name": "ODD", "value": f'"{turn}\\ é%b {{}}'},
        {"name": "TOLD", "value": f"$(RANK)/{turn}"},
        *container.get("env", ()),
    ]
    return created


def comparable(answer: Answer) -> tuple[int, Any, list[str]]:
    """The response without what always differs: UIDs, times, names."""
    if answer.status != 201:
        return answer.status, (answer.reason, answer.causes), answer.warnings
    obj = json.loads(answer.body)
    metadata, spec = obj["metadata"], obj["spec"]
    for name in ("uid", "resourceVersion", "creationTimestamp", "name"):
        assert metadata.pop(name)
    for entry in metadata["managedFields"]:
        assert entry.pop("time")
    for condition in obj["status"].get("conditions", ()):
        assert condition.pop("lastTransitionTime")
    text = json.dumps(obj, sort_keys=True)
    for volume in spec.get("volumes", ()):
        if volume["name"].startswith("kube-api-access-"):
            text = text.replace(volume["name"], "kube-api-access-")
    return answer.status, json.loads(text), answer.warnings


@pytest.mark.parametrize("case", CASES)
def test_a_pod_from_a_template_equals_one_processed_in_full(space: Space, case: str) -> None:
    created = [send(space, variant(index, CASES[case])) for index in range(TIMES)]
    alone = send(space, variant(TIMES - 1, CASES[case], name="alone"), YAML)
    assert comparable(created[-1]) == comparable(alone)
    assert all(item.status == created[0].status for item in created), created


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": {"name": "Not A Name"}},
        {"metadata": {"name": 7}},
        {"metadata": {"name": ""}},
        {"metadata": {"name": "q", "labels": {"app": "not a value!", "index": "1"}}},
        {"metadata": {"name": "q", "labels": {"app": 7, "index": "1"}}},
        {"metadata": {"name": "q", "labels": ["app", "index", None]}},
        {"metadata": {"name": "q", "namespace": "elsewhere"}},
        {"metadata": {"name": "q", "resourceVersion": "12"}},
        {"kind": "ConfigMap"},
        {"spec": {}},
        {"spec": None},
    ],
    ids=json.dumps,
)
def test_an_invalid_pod_is_rejected_whatever_was_cached_before(space: Space, changes: Object) -> None:
    for index in range(TIMES):
        assert send(space, variant(index, {})).status == 201
    wrong = {**variant(0, {}), **changes}
    in_json, in_yaml = send(space, wrong), send(space, wrong, YAML)
    assert comparable(in_json) == comparable(in_yaml)


def test_a_label_that_is_null_is_empty(space: Space) -> None:
    created = []
    for index in range(TIMES):
        assert send(space, variant(index, {})).status == 201
        odd = variant(index, {}, name=f"q-{index}")
        odd["metadata"]["labels"]["app"] = None
        created.append(send(space, odd).json["metadata"]["labels"])
    assert created == [{"app": "", "index": str(index)} for index in range(TIMES)]


@pytest.mark.parametrize("value", [7, ["a"], {"a": "b"}, True])
def test_an_environment_variable_that_is_not_a_string_is_rejected(space: Space, value: Any) -> None:
    for index in range(TIMES):
        assert send(space, variant(index, {})).status == 201
    wrong = variant(9, {})
    wrong["spec"]["containers"][0]["env"][0]["value"] = value
    assert send(space, wrong).status == 400


def test_a_taken_name_is_rejected(space: Space) -> None:
    for index in range(TIMES):
        assert send(space, variant(index, {})).status == 201
    assert (send(space, variant(1, {})).status, send(space, variant(1, {})).reason) == (409, "AlreadyExists")


def test_every_pod_has_its_own_name_labels_and_environment(space: Space) -> None:
    created = [send(space, variant(index, {})).json for index in range(6)]
    for field in ("uid", "resourceVersion", "name"):
        assert len({item["metadata"][field] for item in created}) == len(created)
    assert len({item["spec"]["volumes"][0]["name"] for item in created}) > 1
    for index, item in enumerate(created):
        assert item["metadata"]["labels"] == {"app": "a", "index": str(index)}
        assert item["spec"]["containers"][0]["env"] == variant(index, {})["spec"]["containers"][0]["env"]
        assert item == space.get("pods", f"p-{index}")


def test_unknown_and_duplicate_fields_warn_each_time(space: Space) -> None:
    for index in range(TIMES):
        odd = {**variant(index, {}), "colour": "red"}
        assert send(space, odd).warnings == ['299 - "unknown field \\"colour\\""']
    for index in range(TIMES, 2 * TIMES):
        text = json.dumps(variant(index, {})).replace('"kind": "Pod"', '"kind": "Pod", "kind": "Pod"')
        assert send(space, text.encode()).warnings == ['299 - "duplicate field \\"kind\\""']
        assert send(space, text.encode(), fieldValidation="Strict").status == 400


def test_a_duplicate_variable_warns_unless_it_refers_to_the_first(space: Space) -> None:
    def with_path(index: int, value: str) -> Answer:
        obj = variant(index, {})
        obj["spec"]["containers"][0]["env"] += [{"name": "PATH", "value": "/bin"}, {"name": "PATH", "value": value}]
        return send(space, obj)

    assert [bool(with_path(index, "$(PATH):/usr/bin").warnings) for index in range(TIMES)] == [False] * TIMES
    assert [bool(with_path(index + 9, "/usr/bin").warnings) for index in range(TIMES)] == [True] * TIMES


def test_more_templates_than_the_cache_holds_are_created_correctly(space: Space) -> None:
    for index in [*range(MAX_TEMPLATES + 3), *range(3)]:
        obj = pod(generateName="p-", spec={"nodeName": f"n{index}"})
        assert send(space, obj).json["spec"]["nodeName"] == f"n{index}"


def test_a_dry_run_leaves_nothing(space: Space) -> None:
    for index in range(TIMES):
        assert send(space, variant(index, {})).status == 201
        assert send(space, variant(index + 50, {}), dryRun="All").status == 201
        assert space.gone("pods", f"p-{index + 50}")


def test_the_field_manager_of_each_pod_is_recorded(space: Space) -> None:
    for index, manager in enumerate(("one", "two", "one")):
        created = send(space, variant(index, {}), fieldManager=manager).json
        assert [entry["manager"] for entry in created["metadata"]["managedFields"]] == [manager]


def created_again(space: Space, *turns: int) -> Answer:
    """The last of several pods that are alike."""
    return [send(space, variant(index, {})) for index in turns][-1]


def test_a_changed_service_account_invalidates_the_template(space: Space) -> None:
    assert "imagePullSecrets" not in created_again(space, 0, 1, 2).json["spec"]
    at = space.path("serviceaccounts", "default")
    assert space.api.patch(at, {"imagePullSecrets": [{"name": "registry"}]}).status == 200
    numbers = iter(range(10, 10_000))
    eventually(
        lambda: created_again(space, next(numbers)).json["spec"].get("imagePullSecrets") == [{"name": "registry"}],
        "a pod with the account's pull secret",
    )


def test_a_new_limit_range_invalidates_the_template(space: Space) -> None:
    assert created_again(space, 0, 1, 2).json["spec"]["containers"][0]["resources"] == {}
    limits = {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}
    space.make("limitranges", {"metadata": {"name": "l"}, "spec": limits})
    numbers = iter(range(10, 10_000))

    def limited() -> bool:
        resources = created_again(space, next(numbers)).json["spec"]["containers"][0]["resources"]
        return bool(resources.get("limits") == {"cpu": "2"})

    eventually(limited, "a pod with the new limit")


def test_a_quota_is_charged_for_each_pod(space: Space) -> None:
    assert created_again(space, 0, 1, 2).status == 201
    space.make("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})
    space.api.patch(
        space.path("resourcequotas", "q", "status"), {"status": {"hard": {"pods": "5"}, "used": {"pods": "3"}}}
    )
    numbers = iter(range(10, 10_000))
    eventually(lambda: "exceeded quota: q" in created_again(space, next(numbers)).message, "a pod beyond the quota")


def test_a_terminating_namespace_accepts_no_more_pods(space: Space) -> None:
    held = variant(0, {"finalizers": ["example.com/held"]})
    assert send(space, held).status == 201
    assert created_again(space, 1, 2, 3).status == 201
    try:
        assert space.api.delete(path("namespaces", space.name)).status in (200, 202)
        numbers = iter(range(10, 10_000))
        eventually(lambda: created_again(space, next(numbers)).status == 403, "a refusal")
    finally:
        space.api.patch(space.path("pods", "p-0"), {"metadata": {"finalizers": None}})
