"""From a request's Content-Type, parameters and body to a patch."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from torchyard.api.errors import StatusError
from torchyard.api.schema.types import Type
from torchyard.apiserver.patch import parse
from torchyard.apiserver.patch.parse import APPLY, JSON, MERGE, STRATEGIC, FieldValidation

KIND = Type("object", name="test.Kind", fields={"metadata": Type("map", values=Type("string"))})


@pytest.mark.parametrize("header", [JSON, MERGE, STRATEGIC, APPLY])
def test_built_in_resources_support_four_patch_formats(header: str) -> None:
    assert parse.patch_type(f"{header}; charset=utf-8", custom=False) == header


@pytest.mark.parametrize("header", ["application/json", "application/xml", "", "application/apply-patch+cbor"])
def test_built_in_resources_reject_other_formats(header: str) -> None:
    with pytest.raises(StatusError) as excinfo:
        parse.patch_type(header, custom=False)
    assert (excinfo.value.status, excinfo.value.message) == (415, "415: Unsupported Media Type")


@pytest.mark.parametrize("header", [STRATEGIC, "application/xml"])
def test_custom_resources_list_their_formats_in_the_error(header: str) -> None:
    with pytest.raises(StatusError) as excinfo:
        parse.patch_type(header, custom=True)
    assert excinfo.value.status == 415
    assert excinfo.value.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


OPTIONS: list[tuple[str, str, bool | None, str]] = [
    (APPLY, "", None, "fieldManager: Required value: is required for apply patch"),
    (MERGE, "x", True, "force: Forbidden: may not be specified for non-apply patch"),
    (MERGE, "x", False, "force: Forbidden: may not be specified for non-apply patch"),
    (MERGE, "x" * 129, None, "fieldManager: Too long: may not be more than 128 bytes"),
    (APPLY, "é\tb", None, 'fieldManager: Invalid value: "é\\tb": invalid character U+0009 (at position 2)'),
]


@pytest.mark.parametrize(("type", "manager", "force", "error"), OPTIONS)
def test_invalid_parameters_are_named_in_the_error(type: str, manager: str, force: bool | None, error: str) -> None:
    with pytest.raises(StatusError) as excinfo:
        parse.check_options(type, manager, force=force)
    assert excinfo.value.status == 422
    assert excinfo.value.message == f'PatchOptions.meta.k8s.io "" is invalid: {error}'


@pytest.mark.parametrize(("type", "manager", "force"), [(APPLY, "x", True), (APPLY, "x", None), (MERGE, "", None)])
def test_valid_parameters_are_accepted(type: str, manager: str, force: bool | None) -> None:
    parse.check_options(type, manager, force=force)


@pytest.mark.parametrize(
    ("parameter", "agent", "manager"),
    [
        ("me", "kubectl/v1.34", "me"),
        ("", "kubectl/v1.34 (linux/amd64)", "kubectl"),
        ("", "bare", "bare"),
        ("", "", ""),
        ("", "tab\tbed/1", "tabbed"),
        ("", "é" * 100, "é" * 64),
    ],
)
def test_the_default_field_manager_is_the_user_agents_program(parameter: str, agent: str, manager: str) -> None:
    assert parse.field_manager(parameter, agent) == manager


NOT_A_MAP = "json: cannot unmarshal {} into Go value of type map[string]interface {{}}"
BODIES: list[tuple[str, str, FieldValidation, str]] = [
    (MERGE, "[]", "Warn", "error decoding patch: " + NOT_A_MAP.format("array")),
    (MERGE, "{", "Warn", "error decoding patch: unexpected end of JSON input"),
    (MERGE, "{", "Ignore", "Invalid JSON Patch"),
    (MERGE, '"x"', "Ignore", "Invalid JSON Patch"),
    (MERGE, "null", "Strict", "Invalid JSON Patch"),
    (STRATEGIC, "[]", "Warn", NOT_A_MAP.format("array")),
    (STRATEGIC, "", "Ignore", "unexpected end of JSON input"),
    (STRATEGIC, "3", "Warn", NOT_A_MAP.format("number")),
    (JSON, "[", "Warn", "error decoding patch: unexpected end of JSON input"),
    (JSON, "[", "Ignore", "unexpected end of JSON input"),
    (
        APPLY,
        "[]",
        "Warn",
        "error decoding YAML: error unmarshaling JSON: while decoding JSON: " + NOT_A_MAP.format("array"),
    ),
    (
        APPLY,
        "x",
        "Warn",
        "error decoding YAML: error unmarshaling JSON: while decoding JSON: " + NOT_A_MAP.format("string"),
    ),
    (
        APPLY,
        "a: [",
        "Warn",
        "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content",
    ),
    (
        APPLY,
        "a: 1\na: 2",
        "Strict",
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
        '  line 2: key "a" already set in map',
    ),
]


@pytest.mark.parametrize(("type", "body", "validation", "message"), BODIES)
def test_an_invalid_body_is_a_bad_request(type: str, body: str, validation: FieldValidation, message: str) -> None:
    with pytest.raises(StatusError) as excinfo:
        parse.read_patch(type, body.encode(), validation)
    assert (excinfo.value.status, excinfo.value.message) == (400, message)


@pytest.mark.parametrize(
    ("type", "body"),
    [
        (JSON, [{"op": "add", "path": "/metadata/a", "value": "b"}]),
        (MERGE, {"metadata": {"a": "b"}}),
        (STRATEGIC, {"metadata": {"a": "b"}}),
    ],
)
def test_every_format_can_express_the_same_change(type: str, body: Any) -> None:
    patch = parse.read_patch(type, json.dumps(body).encode())
    assert patch.apply_to({"metadata": {"x": "y"}}, KIND) == {"metadata": {"x": "y", "a": "b"}}


@pytest.mark.parametrize("body", ['{"a": {"b": [1]}}', "a:\n  b: [1]\n", "a: {b: [0x1]}\n--- \nc: d"])
def test_applied_objects_can_be_yaml(body: str) -> None:
    assert parse.read_patch(APPLY, body.encode()).document == {"a": {"b": [1]}}


def test_a_patch_can_be_applied_again_after_its_result_was_changed() -> None:
    patch = parse.read_patch(MERGE, b'{"metadata": {"a": "b"}}')
    first = patch.apply_to({}, KIND)
    first["metadata"]["more"] = "c"
    assert patch.apply_to({}, KIND) == {"metadata": {"a": "b"}}
    applied = parse.read_patch(APPLY, b'{"metadata": {"a": "b"}}')
    applied.document["metadata"]["more"] = "c"
    assert applied.document == {"metadata": {"a": "b"}}


def test_an_empty_apply_is_an_empty_object() -> None:
    assert parse.read_patch(APPLY, b"").document == {}
    assert parse.read_patch(STRATEGIC, b"null").document == {}


REPEATED: list[tuple[str, str, tuple[str, ...]]] = [
    (MERGE, '{"a": {"b": 1, "b": 2}, "l": [{"c": 1, "c": 2}]}', ('duplicate field "a.b"', 'duplicate field "l[0].c"')),
    (STRATEGIC, '{"a": 1, "a": 1}', ('duplicate field "a"',)),
    (JSON, '[{"op": "test", "path": "/a", "x": 1}]', ('json patch unknown field "[0].x"',)),
    (APPLY, '{"a": 1, "a": 1}', ('line 1: key "a" already set in map',)),
    (MERGE, '{"a": "\\u0022", "b": 1}', ()),
]


@pytest.mark.parametrize(("type", "body", "errs"), REPEATED)
def test_strict_errors_are_reported_unless_validation_is_ignore(type: str, body: str, errs: tuple[str, ...]) -> None:
    assert parse.read_patch(type, body.encode(), "Warn").strict_errors == errs
    assert parse.read_patch(type, body.encode(), "Ignore").strict_errors == ()


def test_an_undecodable_result_is_in_the_error_with_the_reason() -> None:
    strategic = parse.read_patch(STRATEGIC, b'{"a": {"b": 1}}').invalid_error({}, "because")
    assert strategic.message == ' "" is invalid: patch: Invalid value: "map[a:map[b:1]]": because'
    merge = parse.read_patch(MERGE, b'{"a": 1}').invalid_error({"a": 1}, "because")
    assert merge.message == ' "" is invalid: patch: Invalid value: "{\\"a\\":1}": because'
    assert (merge.status, merge.reason) == (422, "Invalid")


@pytest.mark.parametrize("type", [MERGE, STRATEGIC])
def test_a_deeply_nested_patch_is_rejected(type: str) -> None:
    depth = 1000
    body = b'{"metadata":' * depth + b"1" + b"}" * depth
    live = orjson.loads(body)
    endless = Type("object", name="test.Endless")
    endless.fields["metadata"] = endless
    with pytest.raises(StatusError) as excinfo:
        parse.read_patch(type, body).apply_to(live, endless)
    assert excinfo.value.status == 400
