"""Validation of queues and workloads, and the suggestions in its messages."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.api.queue.validation import STRATEGIES

QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"


def queue(resource: str = "cpu", nominal: str | int = "4", *, cohort: str = "", **limits: str) -> Object:
    quota = {"name": resource, "nominalQuota": nominal, **limits}
    group = {"coveredResources": [resource], "flavors": [{"name": "default", "resources": [quota]}]}
    spec: Object = {"namespaceSelector": {}, "resourceGroups": [group]}
    return {"metadata": {"name": "team"}, "spec": {**spec, "cohortName": cohort} if cohort else spec}


def workload(**fields: Any) -> Object:
    pods = {"name": "main", "count": 2, "template": {"spec": {"containers": []}}, **fields}
    return {"metadata": {"name": "w"}, "spec": {"queueName": "q", "podSets": [pods]}}


def errs(kind: str, obj: Object) -> list[tuple[str, str]]:
    return [(err.field, err.message) for err in STRATEGIES[kind].validate(obj)]


UNITS = {
    "a decimal unit with a B": ("memory", "64GB", 'Invalid value: "64GB": is not a valid quantity; use 64G'),
    "a binary unit with a B": ("memory", "64GiB", 'Invalid value: "64GiB": is not a valid quantity; use 64Gi'),
    "words": ("cpu", "four", 'Invalid value: "four": is not a valid quantity; use for example 4 or 500m'),
    "half a device": (
        "nvidia.com/gpu",
        "500m",
        'Invalid value: "500m": must be an integer, because nvidia.com/gpu cannot be divided; use 1',
    ),
    "less than nothing": ("cpu", "-1", 'Invalid value: "-1": must be greater than or equal to 0'),
}


@pytest.mark.parametrize(("resource", "amount", "message"), UNITS.values(), ids=UNITS)
def test_invalid_quantity_gets_a_suggestion(resource: str, amount: str, message: str) -> None:
    assert errs("ClusterQueue", queue(resource, amount)) == [(f"{QUOTA}.nominalQuota", message)]


def test_memory_quota_of_a_few_bytes_gets_a_warning() -> None:
    strategy = STRATEGIES["ClusterQueue"]
    assert strategy.validate(queue("memory", 64)) == []
    assert strategy.warnings(queue("memory", 64)) == [
        "flavor default has a quota of 64 bytes of memory; did you mean 64Gi?"
    ]


def test_borrowing_and_lending_limits_require_a_cohort() -> None:
    assert errs("ClusterQueue", queue(cohort="all", borrowingLimit="2", lendingLimit="1")) == []
    assert errs("ClusterQueue", queue(borrowingLimit="2")) == [
        ("spec", 'Invalid value: "object": borrowingLimit must be nil when cohort is empty')
    ]
    assert errs("ClusterQueue", queue(lendingLimit="2")) == [
        (f"{QUOTA}.lendingLimit", 'Invalid value: "2": must be nil when cohort is empty')
    ]


def test_lending_limit_is_at_most_the_nominal_quota() -> None:
    errors = errs("ClusterQueue", queue(cohort="all", lendingLimit="5"))
    assert errors == [(f"{QUOTA}.lendingLimit", 'Invalid value: "5": must be less than or equal to the nominalQuota')]
    cohort = {"metadata": {"name": "a"}, "spec": {**queue(lendingLimit="5")["spec"], "parentName": "b"}}
    assert errs("Cohort", cohort) == [], "a cohort may lend what its members have"


def test_flavors_list_the_covered_resources_in_order() -> None:
    obj = queue()
    obj["spec"]["resourceGroups"][0]["coveredResources"] = ["memory"]
    assert errs("ClusterQueue", obj) == [
        (f"{QUOTA}.name", 'Invalid value: "cpu": must match the name in coveredResources')
    ]
    obj["spec"]["resourceGroups"][0]["coveredResources"] = ["memory", "cpu"]
    assert errs("ClusterQueue", obj) == [
        (
            "spec.resourceGroups[0]",
            'Invalid value: "object": flavors must have the same number of resources as the coveredResources',
        )
    ]


def test_a_resource_and_a_flavor_belong_to_one_group() -> None:
    obj = queue()
    obj["spec"]["resourceGroups"] *= 2
    assert [message for _, message in errs("ClusterQueue", obj)] == [
        'Duplicate value: "cpu"',
        'Duplicate value: "default"',
    ]


def test_cohort_that_is_its_own_parent_is_rejected() -> None:
    [(field, message)] = errs("Cohort", {"metadata": {"name": "a"}, "spec": {"parentName": "a"}})
    assert field == "spec.parentName"
    assert "the cohorts a -> a form a cycle; give one of them another parentName" in message


def test_fair_sharing_needs_no_warning() -> None:
    obj = queue()
    obj["spec"]["fairSharing"] = {"weight": 2}
    assert STRATEGIES["ClusterQueue"].warnings(obj) == []


def test_queue_without_namespaces_gets_a_warning() -> None:
    obj = queue()
    del obj["spec"]["namespaceSelector"]
    assert "use {} to select all namespaces" in STRATEGIES["ClusterQueue"].warnings(obj)[0]


def test_min_count_is_at_most_count() -> None:
    [(field, _)] = errs("Workload", workload(minCount=3))
    assert field == "spec.podSets[0]"
    assert errs("Workload", workload(minCount=1)) == []


def test_admitted_workload_cannot_change_its_queue() -> None:
    assignment = {"name": "main", "count": 2, "resourceUsage": {"cpu": "2"}}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    admission = {"clusterQueue": "team", "podSetAssignments": [assignment]}
    old = {**workload(), "status": {"conditions": [reserved], "admission": admission}}
    new = {**old, "spec": {**old["spec"], "queueName": "other"}}
    errors = STRATEGIES["Workload"].validate_update(new, old)
    assert [err.message for err in errors] == [
        'Invalid value: "object": queueName is immutable while workload quota reserved'
    ]
    del old["status"]
    assert STRATEGIES["Workload"].validate_update(new, old) == []


def test_invalid_quantity_in_a_template_is_rejected() -> None:
    container = {"name": "c", "resources": {"requests": {"memory": "1GB"}}}
    [(field, message)] = errs("Workload", workload(template={"spec": {"containers": [container]}}))
    assert field == "spec.podSets[0].template.spec.containers[0].resources.requests[memory]"
    assert message.endswith("use 1G")


def test_workload_names_have_kueues_form() -> None:
    name = names.workload_name("Job", "batch", "train", "6c0dbcc6-7ad9-4ee0-a4e8-7f6a9e4b3f1d")
    assert name.startswith("job-train-")
    assert len(name) == len("job-train-") + 5
    assert names.workload_name("Job", "batch", "train", "another") != name
    assert len(names.workload_name("Job", "batch", "x" * 300, "u")) == 253


RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}


def with_spec(obj: Object, **spec: Any) -> Object:
    return {**obj, "spec": {**obj["spec"], **spec}}


def template(**spec: Any) -> Object:
    return workload(template={"spec": {"containers": [], **spec}})


def flavor(**spec: Any) -> Object:
    return {"metadata": {"name": "f"}, "spec": spec}


INVALID: dict[str, tuple[str, Object, str, str]] = {
    "negative weight": (
        "ClusterQueue",
        with_spec(queue(), fairSharing={"weight": "-1"}),
        "spec.fairSharing",
        "must be greater than or equal to 0",
    ),
    "weight that is no quantity": (
        "Cohort",
        {"metadata": {"name": "a"}, "spec": {"fairSharing": {"weight": "a lot"}}},
        "spec.fairSharing.weight",
        "is not a valid quantity",
    ),
    "weight of a LocalQueue that is no quantity": (
        "LocalQueue",
        {"metadata": {"name": "q"}, "spec": {"clusterQueue": "team", "fairSharing": {"weight": "abc"}}},
        "spec.fairSharing.weight",
        "is not a valid quantity",
    ),
    "weight of a LocalQueue that is too large": (
        "LocalQueue",
        {"metadata": {"name": "q"}, "spec": {"clusterQueue": "team", "fairSharing": {"weight": "1e400"}}},
        "spec.fairSharing.weight",
        "must be less than or equal to 9223372036854775807",
    ),
    "tiny weight of a cohort": (
        "Cohort",
        {"metadata": {"name": "a"}, "spec": {"fairSharing": {"weight": "1n"}}},
        "spec.fairSharing",
        "When not 0, weight must be > 10e-9",
    ),
    "resource name": (
        "ClusterQueue",
        queue("@cpu"),
        "spec.resourceGroups[0].coveredResources[0]",
        "name part must consist of alphanumeric characters",
    ),
    "selector": (
        "ClusterQueue",
        with_spec(queue(), namespaceSelector={"matchLabels": {"@a": "b"}}),
        "spec.namespaceSelector.matchLabels",
        "name part must consist of alphanumeric characters",
    ),
    "borrowing without reclaiming": (
        "ClusterQueue",
        with_spec(queue(), preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "spec.preemption",
        "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
    ),
    "check on an unknown flavor": (
        "ClusterQueue",
        with_spec(queue(), admissionChecksStrategy={"admissionChecks": [{"name": "a", "onFlavors": ["x"]}]}),
        "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]",
        'supported values: "default"',
    ),
    "taint effect": (
        "ResourceFlavor",
        flavor(nodeTaints=[{"key": "a", "effect": "Never"}]),
        "spec.nodeTaints",
        "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
    ),
    "duplicate taint": (
        "ResourceFlavor",
        flavor(nodeTaints=[{"key": "a", "effect": "NoSchedule"}] * 2),
        "spec.nodeTaints[1]",
        "taints must be unique by key and effect pair",
    ),
    "toleration without key": (
        "ResourceFlavor",
        flavor(tolerations=[{"operator": "Equal", "value": "a"}]),
        "spec.tolerations",
        "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
    ),
    "toleration key": (
        "ResourceFlavor",
        flavor(tolerations=[{"key": "@a", "operator": "Exists"}]),
        "spec.tolerations[0].key",
        "name part must consist of alphanumeric characters",
    ),
    "request for pods": (
        "Workload",
        template(containers=[{"name": "c", "resources": {"requests": {"pods": "1"}}}]),
        "spec.podSets[0].template.spec.containers[0].resources.requests[pods]",
        "the key is reserved for internal kueue use",
    ),
    "negative pod-level resources": (
        "Workload",
        template(resources={"limits": {"cpu": "-1"}}),
        "spec.podSets[0].template.spec.resources.limits[cpu]",
        "must be greater than or equal to 0",
    ),
    "kind of a priority class": (
        "Workload",
        with_spec(workload(), priority=1, priorityClassRef={**CLASS, "kind": "PriorityClass"}),
        "spec.priorityClassRef",
        "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
    ),
}


@pytest.mark.parametrize(("kind", "obj", "field", "message"), INVALID.values(), ids=INVALID)
def test_objects_that_kueue_refuses_are_refused(kind: str, obj: Object, field: str, message: str) -> None:
    [(at, text)] = errs(kind, obj)
    assert at == field
    assert message in text


def reserved(**status: Any) -> Object:
    assignment = {"name": "main", "count": 2, "resourceUsage": {"cpu": "2"}}
    admission = {"clusterQueue": "team", "podSetAssignments": [assignment]}
    obj = with_spec(workload(), priority=1, priorityClassRef=CLASS)
    return {**obj, "status": {"conditions": [RESERVED], "admission": admission, **status}}


UPDATES: dict[str, tuple[Object, str]] = {
    "unknown pod set": (
        reserved(admission={"clusterQueue": "team", "podSetAssignments": [{"name": "other"}]}),
        'Not found: "other"',
    ),
    "missing assignment": (
        reserved(admission={"clusterQueue": "team", "podSetAssignments": []}),
        "podSetAssignments must have the same number of podSets as the spec",
    ),
    "usage that does not divide": (
        reserved(
            admission={
                "clusterQueue": "team",
                "podSetAssignments": [{"name": "main", "count": 2, "resourceUsage": {"memory": "3"}}],
            }
        ),
        "is not a multiple of 2",
    ),
    "reclaimable pods of an unknown pod set": (
        reserved(reclaimablePods=[{"name": "other", "count": 1}]),
        'supported values: "main"',
    ),
    "too many reclaimable pods": (
        reserved(reclaimablePods=[{"name": "main", "count": 3}]),
        "should be less or equal to 2",
    ),
    "fewer reclaimable pods": (
        reserved(reclaimablePods=[{"name": "main", "count": 0}]),
        "cannot be less than 1",
    ),
    "no priority class": (
        with_spec(reserved(reclaimablePods=[{"name": "main", "count": 1}]), priorityClassRef=None),
        "priorityClassRef is immutable while workload quota reserved",
    ),
    "another template": (
        {
            **reserved(reclaimablePods=[{"name": "main", "count": 1}]),
            "spec": {**reserved()["spec"], "podSets": template(nodeName="n")["spec"]["podSets"]},
        },
        "field is immutable",
    ),
}


@pytest.mark.parametrize(("new", "message"), UPDATES.values(), ids=UPDATES)
def test_status_of_a_workload_with_quota_is_validated(new: Object, message: str) -> None:
    old = reserved(reclaimablePods=[{"name": "main", "count": 1}])
    errors = [str(err) for err in STRATEGIES["Workload"].validate_status(new, old)]
    assert any(message in error for error in errors), errors
    assert STRATEGIES["Workload"].validate_status(old, old) == []
