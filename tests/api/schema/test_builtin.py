"""The generated table of built-in types."""

from __future__ import annotations

import pytest

from torchyard.api.group_version import GroupVersionKind
from torchyard.api.schema.builtin import definition, definition_names, kinds, type_of
from torchyard.api.schema.types import Type

POD = GroupVersionKind("", "v1", "Pod")


def at(path: str, kind: GroupVersionKind = POD) -> Type:
    """Return the type at a dotted path; `[]` steps into a list, `{}` into a map."""
    node = type_of(kind)
    for step in path.split("."):
        assert node is not None
        node = node.items if step == "[]" else node.values if step == "{}" else node.fields[step]
    assert node is not None
    return node


def test_every_definition_resolves() -> None:
    for name in definition_names():
        assert definition(name).name == name


def test_every_kind_has_the_standard_fields_of_an_object() -> None:
    for kind in kinds():
        type_ = type_of(kind)
        assert type_ is not None
        assert {"apiVersion", "kind"} <= type_.fields.keys(), kind


def test_an_unknown_kind_has_no_type() -> None:
    assert type_of(GroupVersionKind("", "v2", "Pod")) is None
    with pytest.raises(KeyError):
        definition("io.k8s.api.core.v1.Nothing")


def test_a_definition_is_built_once_and_shared() -> None:
    assert type_of(POD) is type_of(POD)
    assert at("spec.containers.[]").fields is at("spec.initContainers.[]").fields


def test_a_recursive_definition_can_be_built() -> None:
    schema = definition("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
    properties = schema.fields["properties"].values
    assert properties is not None
    assert properties.fields is schema.fields


@pytest.mark.parametrize(
    ("path", "shape", "format"),
    [
        ("metadata.creationTimestamp", "string", "date-time"),
        ("metadata.labels.{}", "string", ""),
        ("metadata.managedFields.[].fieldsV1", "any", ""),
        ("spec.containers.[].resources.limits.{}", "string", "quantity"),
        ("spec.containers.[].livenessProbe.httpGet.port", "int-or-string", ""),
        ("spec.containers.[].ports.[].containerPort", "integer", "int32"),
        ("spec.terminationGracePeriodSeconds", "integer", "int64"),
        ("spec.hostNetwork", "boolean", ""),
        ("status", "object", ""),
    ],
)
def test_scalars_have_their_format(path: str, shape: str, format: str) -> None:
    assert (at(path).shape, at(path).format) == (shape, format)


@pytest.mark.parametrize(
    ("path", "zero"),
    [
        ("spec.hostNetwork", "omit"),
        ("spec.nodeSelector", "omit"),
        ("metadata.creationTimestamp", "omit"),
        ("spec.automountServiceAccountToken", "keep"),
        ("spec.securityContext", "keep"),
        ("spec.containers", "always"),
        ("spec.containers.[].name", "always"),
        ("spec.containers.[].resources", "always"),
        ("status", "always"),
    ],
)
def test_zero_values_are_omitted_kept_or_always_written(path: str, zero: str) -> None:
    assert at(path).zero == zero


def test_lists_have_their_merge_strategy() -> None:
    ports = at("spec.containers.[].ports")
    assert (ports.list_type, ports.list_keys) == ("map", ("containerPort", "protocol"))
    assert (ports.patch_strategy, ports.patch_merge_key) == (("merge",), "containerPort")
    assert ports.items is not None
    assert ports.items.fields["protocol"].default == "TCP"
    assert at("spec.volumes").patch_strategy == ("merge", "retainKeys")
    assert at("metadata.finalizers").list_type == "set"
    assert at("spec.tolerations").list_type == "atomic"
    assert at("spec.nodeSelector").atomic_map
    assert at("metadata.ownerReferences.[]").atomic_map


def test_a_field_may_override_its_definition() -> None:
    assert definition("io.k8s.api.core.v1.ObjectReference").atomic_map
    assert not at("spec.claimRef", GroupVersionKind("", "v1", "PersistentVolume")).atomic_map


def test_metrics_kinds_have_types() -> None:
    usage = at("containers.[].usage.{}", GroupVersionKind("metrics.k8s.io", "v1beta1", "PodMetrics"))
    assert usage.format == "quantity"
