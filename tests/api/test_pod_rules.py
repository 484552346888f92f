"""Derived values of pods, resizing, diffs and selectable fields."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.diff import format_diff, semantically_equal
from torchyard.api.field_errors import FieldError
from torchyard.api.kinds import STRATEGIES
from torchyard.api.objects import Object
from torchyard.api.pod.defaults import pull_policy
from torchyard.api.pod.qos import quality_of_service
from torchyard.api.pod.updates import apply_resize, validate_resize
from torchyard.api.pod.validation import check_metadata_and_spec
from torchyard.api.schema import builtin


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("img", "Always"),
        ("img:latest", "Always"),
        ("host:5000/a/img", "Always"),
        ("img:1", "IfNotPresent"),
        ("host:5000/a/img:1", "IfNotPresent"),
        (f"img@sha256:{'a' * 64}", "IfNotPresent"),
        (f"img:latest@sha256:{'a' * 64}", "Always"),
        ("Not An Image", "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_the_default_pull_policy_depends_on_the_tag(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


def pod(*resources: Object) -> Object:
    return {
        "metadata": {},
        "spec": {"containers": [{"name": f"c{n}", "resources": r} for n, r in enumerate(resources)]},
    }


WHOLE = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ([{}], "BestEffort"),
        ([{"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}], "BestEffort"),
        ([{"limits": WHOLE, "requests": WHOLE}], "Guaranteed"),
        ([{"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": WHOLE}], "Guaranteed"),
        ([{"limits": WHOLE, "requests": WHOLE}, {}], "Burstable"),
        ([{"limits": {"cpu": "2", "memory": "1Gi"}, "requests": WHOLE}], "Burstable"),
        ([{"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}], "Burstable"),
    ],
)
def test_the_qos_class_follows_from_cpu_and_memory(resources: list[Object], quality: str) -> None:
    assert quality_of_service(pod(*resources)) == quality


def test_resize_changes_only_resources() -> None:
    sent = {"spec": {"containers": [{"name": "c0", "image": "other", "resources": {"limits": WHOLE}}]}}
    assert apply_resize(pod({}), sent)["spec"]["containers"] == [{"name": "c0", "resources": {"limits": WHOLE}}]


@pytest.mark.parametrize(
    ("containers", "field", "detail"),
    [
        (["c0"], "spec.containers", "containers may not be added or removed on resize"),
        (["c0", "c1", "c2"], "spec.containers", "containers may not be added or removed on resize"),
        ([], "spec.containers", "containers may not be added or removed on resize"),
        (["c0", "d"], "spec.containers[1].name", "containers may not be renamed or reordered on resize"),
        (["c1", "c0"], "spec.containers[0].name", "containers may not be renamed or reordered on resize"),
    ],
)
def test_a_resize_keeps_the_containers(containers: list[str], field: str, detail: str) -> None:
    sent = {"spec": {"containers": [{"name": name, "resources": {}} for name in containers]}}
    errs = validate_resize(apply_resize(pod({}, {}), sent), pod({}, {}))
    assert (field, f"Forbidden: {detail}") in [(error.field, error.message) for error in errs]


@pytest.mark.parametrize("claims", [[], [{"name": "gpu"}]])
def test_resources_of_the_whole_pod_have_no_claims(claims: list[Object]) -> None:
    spec = {**pod({})["spec"], "resources": {"limits": {"cpu": "1"}, "claims": claims}}
    errs: list[FieldError] = []
    check_metadata_and_spec({"metadata": {"name": "p", "namespace": "default"}, "spec": spec}, errs)
    assert "spec.resources.claims" in {error.field for error in errs}


def test_a_diff_has_the_path_and_both_values() -> None:
    old = {"a": [{"b": 1}], "c": "x", "gone": {}}
    new = {"a": [{"b": 2}], "c": "x", "empty": None}
    assert format_diff(old, new) == "  a[0].b: - 1 + 2"
    assert not semantically_equal(old, new)
    assert semantically_equal({"a": None, "b": []}, {"c": {}, "d": ""})
    assert not semantically_equal({"a": 0}, {})


@pytest.mark.parametrize(
    ("definition", "field", "value", "is_equal"),
    [
        ("core.v1.PodAffinityTerm", "namespaceSelector", {}, False),
        ("core.v1.PersistentVolumeClaimSpec", "storageClassName", "", False),
        ("core.v1.PersistentVolumeClaimSpec", "volumeName", "", True),
        ("core.v1.PodSpec", "nodeSelector", {}, True),
        ("core.v1.PodSpec", "tolerations", [], True),
        ("core.v1.Container", "resources", {}, True),
    ],
)
def test_an_empty_value_differs_from_an_absent_one_where_go_has_a_pointer(
    definition: str, field: str, value: Any, is_equal: bool
) -> None:
    type = builtin.definition(f"io.k8s.api.{definition}")
    assert semantically_equal({field: value}, {}, type) is is_equal
    assert semantically_equal({}, {field: value}, type) is is_equal


def test_a_long_diff_is_truncated() -> None:
    text = format_diff({str(n): n for n in range(1, 21)}, {})
    assert text.splitlines()[-1] == "  … and 12 more"


@pytest.mark.parametrize("key", STRATEGIES)
def test_selectable_fields_of_every_kind_work_with_an_empty_object(key: tuple[str, str]) -> None:
    fields = STRATEGIES[key].selectable({})
    assert all(isinstance(value, str) for value in fields.values())


@pytest.mark.parametrize(
    ("key", "obj", "fields"),
    [
        (
            ("", "pods"),
            {
                "spec": {"nodeName": "n", "hostNetwork": True},
                "status": {"phase": "Running", "podIPs": [{"ip": "1.2.3.4"}]},
            },
            {"spec.nodeName": "n", "spec.hostNetwork": "true", "status.phase": "Running", "status.podIP": "1.2.3.4"},
        ),
        (("batch", "jobs"), {"status": {"succeeded": 3}}, {"status.successful": "3"}),
        (("", "nodes"), {"spec": {"unschedulable": True}}, {"spec.unschedulable": "true"}),
        (("", "secrets"), {"type": "Opaque"}, {"type": "Opaque"}),
        (("", "services"), {"spec": {"type": "ClusterIP", "clusterIP": "None"}}, {"spec.clusterIP": "None"}),
        (
            ("", "events"),
            {"involvedObject": {"name": "p"}, "source": {"component": "kubelet"}},
            {"involvedObject.name": "p", "source": "kubelet"},
        ),
        (("events.k8s.io", "events"), {"involvedObject": {"name": "p"}}, {"regarding.name": "p"}),
    ],
)
def test_selectable_fields_of_a_kind(key: tuple[str, str], obj: Object, fields: dict[str, str]) -> None:
    assert STRATEGIES[key].selectable(obj).items() >= fields.items()
