"""Validation of names and metadata."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from torchyard.api import names
from torchyard.api.strategy import NameRule

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SERVICE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize(
    ("rule", "name", "problems"),
    [
        ("subdomain", "a.b-c.d", []),
        ("subdomain", "a" * 253, []),
        ("subdomain", "A", [SUBDOMAIN]),
        ("subdomain", "a..b", [SUBDOMAIN]),
        ("subdomain", "a\n", [SUBDOMAIN]),
        ("subdomain", "a" * 254, ["must be no more than 253 characters"]),
        ("label", "1a", []),
        ("label", "a.b", ["must not contain dots"]),
        ("label", "A", [LABEL]),
        ("label", "a" * 64, ["must be no more than 63 characters"]),
        ("service", "a-1", []),
        ("service", "1a", [SERVICE]),
        ("service", "A" * 64, ["must be no more than 63 characters", SERVICE]),
        ("path-segment", "system:node A", []),
        ("path-segment", "a/b%", ["may not contain '/'", "may not contain '%'"]),
        ("path-segment", "..", ["may not be '..'"]),
    ],
)
def test_a_name_must_follow_its_kinds_rule(rule: NameRule, name: str, problems: list[str]) -> None:
    assert names.name_problems(name, rule) == problems


def test_a_generated_name_has_58_characters_of_the_base_and_5_random_ones() -> None:
    name = names.generate_name("a" * 80 + "-", Random(1))
    assert len(name) == 63
    assert name.startswith("a" * 58)
    assert set(name[58:]) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert names.generate_name("job-", Random(1)) != names.generate_name("job-", Random(2))


def errors_of(meta: dict[str, Any], **rules: Any) -> list[tuple[str, str, str]]:
    return [
        (err.field, err.reason, err.message) for err in names.validate_metadata(meta, **{"namespaced": True, **rules})
    ]


META: dict[str, Any] = {"name": "x", "namespace": "default"}


def test_a_prefix_may_end_in_a_dash_but_not_in_a_dot() -> None:
    assert errors_of({**META, "name": "a-8mlsr", "generateName": "a-"}) == []
    assert errors_of({**META, "name": "a.6shpt", "generateName": "a."}) == [
        ("metadata.generateName", "FieldValueInvalid", f'Invalid value: "a.": {SUBDOMAIN}')
    ]


@pytest.mark.parametrize(
    ("labels", "messages"),
    [
        ({"a": "", "example.com/B_c.d": "X"}, []),
        ({"/x": "x"}, ['Invalid value: "/x": prefix part must be non-empty']),
        ({"A/x": "x"}, [f'Invalid value: "A/x": prefix part {SUBDOMAIN}']),
        ({"a" * 64: "x"}, [f'Invalid value: "{"a" * 64}": name part must be no more than 63 characters']),
        ({"x": "a" * 64}, [f'Invalid value: "{"a" * 64}": must be no more than 63 characters']),
        (
            {"x": "-"},
            [
                'Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '
                "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
                "'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ],
        ),
        (
            {"a/b/c": "x"},
            [
                "Invalid value: \"a/b/c\": a qualified name must consist of alphanumeric characters, '-', '_' or '.', "
                "and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
                "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS "
                "subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ],
        ),
    ],
)
def test_labels_are_qualified_names_with_short_values(labels: dict[str, str], messages: list[str]) -> None:
    errs = errors_of({**META, "labels": labels})
    assert [message for _, _, message in errs] == messages
    assert {field for field, _, _ in errs} <= {"metadata.labels"}


def test_the_total_size_of_annotations_is_limited() -> None:
    assert errors_of({**META, "annotations": {"UPPER.case/Key": "x" * 1000}}) == []
    assert errors_of({**META, "annotations": {"a": "x" * 262144}}) == [
        ("metadata.annotations", "FieldValueTooLong", "Too long: may not be more than 262144 bytes")
    ]


def test_finalizers_of_built_in_kinds_need_a_domain() -> None:
    meta = {**META, "finalizers": ["a", "kubernetes", "a.b/c"]}
    assert errors_of(meta) == [
        (
            "metadata.finalizers[0]",
            "FieldValueInvalid",
            'Invalid value: "a": name is neither a standard finalizer name nor is it fully qualified',
        )
    ]
    assert errors_of(meta, built_in=False) == []


def test_owner_references_must_be_complete_with_at_most_one_controller() -> None:
    owners = [
        {"apiVersion": "", "kind": "", "name": "", "uid": ""},
        {"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "b"},
        {"apiVersion": "a/v1", "kind": "X", "name": "a", "uid": "b", "controller": True},
        {"apiVersion": "v1", "kind": "Pod", "name": "c", "uid": "b", "controller": True},
    ]
    errs = errors_of({**META, "ownerReferences": owners})
    assert [field.removeprefix("metadata.ownerReferences") for field, _, _ in errs] == [
        ".apiVersion",
        ".kind",
        ".name",
        ".uid",
        "",
        "",
    ]
    assert errs[-1][2].endswith('Found "true" in references for X/a and Pod/c')


def test_only_namespaced_kinds_have_a_namespace() -> None:
    assert errors_of({"name": "x"}) == [("metadata.namespace", "FieldValueRequired", "Required value")]
    assert errors_of(META, namespaced=False) == [
        ("metadata.namespace", "FieldValueForbidden", "Forbidden: not allowed on this type")
    ]


OLD: dict[str, Any] = {
    **META,
    "uid": "1",
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "resourceVersion": "5",
    "generation": 2,
}


@pytest.mark.parametrize(
    ("generated", "rule", "valid"),
    [
        ("a-", "path-segment", True),
        ("Not_A_Name-", "path-segment", True),
        (".", "path-segment", True),
        ("a/b", "path-segment", False),
        ("a-", "subdomain", True),
        ("Not_A_Name-", "subdomain", False),
    ],
)
def test_the_prefix_of_generated_names_is_validated_on_update(generated: str, rule: NameRule, valid: bool) -> None:
    meta = {"name": "a", "resourceVersion": "5"}
    errs = names.validate_metadata_update({**meta, "generateName": generated}, meta, name_rule=rule)
    assert {error.field for error in errs} == (set() if valid else {"metadata.generateName"})


@pytest.mark.parametrize(
    ("change", "old_change", "expected"),
    [
        ({}, {}, []),
        ({"uid": "2"}, {}, [("metadata.uid", 'Invalid value: "2": field is immutable')]),
        (
            {"resourceVersion": ""},
            {},
            [("metadata.resourceVersion", 'Invalid value: "": must be specified for an update')],
        ),
        ({"generation": 1}, {}, [("metadata.generation", "Invalid value: 1: must not be decremented")]),
        (
            {"finalizers": ["a/b", "c/d"], "deletionTimestamp": "t"},
            {"finalizers": ["c/d"], "deletionTimestamp": "t"},
            [
                (
                    "metadata.finalizers",
                    "Forbidden: no new finalizers can be added if the object is being deleted, "
                    'found new finalizers []string{"a/b"}',
                )
            ],
        ),
        (
            {"managedFields": [{"manager": "x" * 129, "operation": "Foo", "fieldsType": "x"}]},
            {},
            [
                ("metadata.managedFields[0].operation", 'Invalid value: "Foo": must be `Apply` or `Update`'),
                ("metadata.managedFields[0].fieldsType", 'Invalid value: "x": must be `FieldsV1`'),
                ("metadata.managedFields[0].manager", "Too long: may not be more than 128 bytes"),
            ],
        ),
    ],
)
def test_an_update_cannot_change_metadata_that_the_server_sets(
    change: dict[str, Any], old_change: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    errs = names.validate_metadata_update({**OLD, **change}, {**OLD, **old_change})
    assert [(err.field, err.message) for err in errs] == expected
