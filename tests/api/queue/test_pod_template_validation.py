"""Templates that Kueue refuses in a workload are refused; the rest of them is validated when pods are created."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.api.queue.validation import STRATEGIES


def workload(template: Any) -> Object:
    pod_set = {"name": "main", "count": 1, "template": template}
    return {"metadata": {"name": "w", "namespace": "default"}, "spec": {"queueName": "q", "podSets": [pod_set]}}


def pod(**container: Any) -> Object:
    return {"spec": {"containers": [{"name": "c", "image": "i", **container}]}}


def errors(template: Any) -> list[str]:
    return [f"{err.field}: {err.message}" for err in STRATEGIES["Workload"].validate(workload(template))]


REFUSED = {
    "no containers": ({"spec": {}}, "spec.containers: Required value"),
    "container without a name": ({"spec": {"containers": [{"image": "i"}]}}, "spec.containers[0].name: Required value"),
    "equal containers": (
        {"spec": {"containers": [{"name": "c"}] * 2}},
        'spec.containers[1].name: Duplicate value: "c"',
    ),
    "name of another type": (
        pod(name=5),
        "cannot unmarshal number into Go struct field Container",
    ),
    "containers of another type": ({"spec": {"containers": "c"}}, "cannot unmarshal string"),
    "container of another type": ({"spec": {"containers": ["c"]}}, "cannot unmarshal string"),
    "resources of another type": (pod(resources="x"), "cannot unmarshal string"),
    "spec of another type": ({"spec": "x"}, "cannot unmarshal string"),
    "port of more than 32 bits": (pod(ports=[{"containerPort": 2**31}]), "cannot unmarshal number 2147483648"),
    "port without a number": (pod(ports=[{}]), "spec.containers[0].ports[0].containerPort: Required value"),
    "variable without a name": (pod(env=[None]), "spec.containers[0].env[0].name: Required value"),
    "init container without a name": (
        {"spec": {"containers": [{"name": "c"}], "initContainers": [{}]}},
        "spec.initContainers[0].name: Required value",
    ),
    "label": ({**pod(), "metadata": {"labels": {"@a": "b"}}}, 'metadata.labels: Invalid value: "@a"'),
    "annotation": ({**pod(), "metadata": {"annotations": {"@a": "b"}}}, 'metadata.annotations: Invalid value: "@a"'),
}


@pytest.mark.parametrize(("template", "message"), REFUSED.values(), ids=REFUSED)
def test_template_is_refused(template: Any, message: str) -> None:
    [error] = errors(template)
    assert error.startswith("spec.podSets[0].template")
    assert message in error


ACCEPTED = {
    "nothing": {},
    "no container yet": {"spec": {"containers": []}},
    "equal variables, of which the last one counts": pod(env=[{"name": "A", "value": value} for value in "bc"]),
    "unknown field": pod(later="x"),
}


@pytest.mark.parametrize("template", ACCEPTED.values(), ids=ACCEPTED)
def test_template_is_accepted(template: Any) -> None:
    assert errors(template) == []


def test_template_is_checked_again_only_when_it_changes() -> None:
    stored, changed = workload({"spec": {}}), workload({"spec": {"containers": [{}]}})
    assert STRATEGIES["Workload"].validate_update(stored, stored) == []
    assert STRATEGIES["Workload"].validate_update(changed, stored) != []
