"""Validation of queues and workloads, and the suggestions in its messages."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
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
    errors = errs("ClusterQueue", queue(borrowingLimit="2"))
    assert [field for field, _ in errors] == [f"{QUOTA}.borrowingLimit"]
    assert "no cohort" in errors[0][1]


def test_lending_limit_is_at_most_the_nominal_quota() -> None:
    errors = errs("ClusterQueue", queue(cohort="all", lendingLimit="5"))
    assert errors == [(f"{QUOTA}.lendingLimit", 'Invalid value: "5": must be at most the nominalQuota, 4')]


def test_flavors_list_the_covered_resources_in_order() -> None:
    obj = queue()
    obj["spec"]["resourceGroups"][0]["coveredResources"] = ["memory", "cpu"]
    [(field, message)] = errs("ClusterQueue", obj)
    assert field == "spec.resourceGroups[0].flavors[0].resources"
    assert message.endswith("must list the coveredResources, in their order: memory, cpu")


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


def test_fair_sharing_is_stored_with_a_warning() -> None:
    obj = queue()
    obj["spec"]["fairSharing"] = {"weight": 2}
    assert STRATEGIES["ClusterQueue"].warnings(obj) == [messages.FAIR_SHARING_IGNORED]


def test_queue_without_namespaces_gets_a_warning() -> None:
    obj = queue()
    del obj["spec"]["namespaceSelector"]
    assert "use {} to select all namespaces" in STRATEGIES["ClusterQueue"].warnings(obj)[0]


def test_min_count_is_at_most_count() -> None:
    [(field, _)] = errs("Workload", workload(minCount=3))
    assert field == "spec.podSets[0].minCount"
    assert errs("Workload", workload(minCount=1)) == []


def test_admitted_workload_cannot_change_its_queue() -> None:
    old = {**workload(), "status": {"admission": {"clusterQueue": "team"}}}
    new = {**old, "spec": {**old["spec"], "queueName": "other"}}
    errors = STRATEGIES["Workload"].validate_update(new, old)
    assert [err.field for err in errors] == ["spec.queueName"]
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
