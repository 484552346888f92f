"""Requests that no ordinary client sends get the same answer on both servers: odd text, paths and names."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.objects import Definitions, Space, crd
from tests.support.http import JSON, JSON_PATCH, MERGE, STRATEGIC, Client

REPLACED = "\ufffd"
MAP = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"odd"},"data":{"a":"%s"}}'


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b"x\xff\xfey", "x" + 2 * REPLACED + "y"),
        (b"\xe2\x82y", 2 * REPLACED + "y"),
        (b"\xed\xa0\x80", 3 * REPLACED),
        (rb"\ud800x", REPLACED + "x"),
        (rb"x\ude00", "x" + REPLACED),
        (rb"\uD800\ud83d\ude00", REPLACED + "\U0001f600"),
        (rb"\\ud800\"\ud800", '\\ud800"' + REPLACED),
    ],
)
def test_text_that_is_not_unicode_is_replaced_in_new_objects(space: Space, text: bytes, read: str) -> None:
    created = space.api.request("POST", space.path("configmaps"), MAP % text)
    assert (created.status, created.json.get("data")) == (201, {"a": read}), created


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        (MERGE, b'{"data":{"b":"\xff\\ud800"}}'),
        (STRATEGIC, b'{"data":{"b":"\xff\\ud800"}}'),
        (JSON_PATCH, b'[{"op":"add","path":"/data/b","value":"\xff\\ud800"}]'),
    ],
)
def test_text_that_is_not_unicode_is_replaced_in_patches(space: Space, content_type: str, patch: bytes) -> None:
    assert space.api.request("POST", space.path("configmaps"), MAP % b"x").status == 201
    patched = space.api.request("PATCH", space.path("configmaps", "odd"), patch, headers={"Content-Type": content_type})
    assert (patched.status, patched.json.get("data")) == (200, {"a": "x", "b": 2 * REPLACED}), patched


def test_text_that_is_not_unicode_does_not_hide_duplicate_fields(space: Space) -> None:
    body = MAP.replace(b'"data"', b'"nosuch":1,"data"') % b'\xff","a":"\xff'
    refused = space.api.request("POST", space.path("configmaps"), body, query={"fieldValidation": "Strict"})
    assert (refused.status, refused.message) == (
        400,
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "nosuch", '
        'duplicate field "data.a"',
    )


def test_text_that_is_not_unicode_is_replaced_in_custom_objects(crds: Definitions, space: Space) -> None:
    crds.create(crd("texts"))
    body = b'{"apiVersion":"test.torchyard.dev/v1","kind":"Text","metadata":{"name":"x","annotations":{"a":"\xff"}}}'
    created = space.api.request("POST", space.path("texts", group="test.torchyard.dev/v1"), body)
    assert created.status == 201, created
    assert created.json["metadata"]["annotations"] == {"a": REPLACED}


def test_text_that_is_not_unicode_is_replaced_in_delete_options(space: Space) -> None:
    space.make("configmaps", {"metadata": {"name": "x"}})
    refused = space.api.request("DELETE", space.path("configmaps", "x"), b'{"preconditions":{"uid":"\xff"}}')
    assert (refused.status, f"precondition ({REPLACED})" in refused.message) == (409, True), refused


@pytest.mark.parametrize("plural", ["pods", "configmaps", "deployments", "leases"])
def test_a_namespaced_object_cannot_be_created_without_a_namespace(api: Client, plural: str) -> None:
    group = {"deployments": "/apis/apps/v1", "leases": "/apis/coordination.k8s.io/v1"}.get(plural, "/api/v1")
    assert [
        (refused.status, refused.reason)
        for refused in (api.post(f"{group}/{plural}", {}), api.post(f"{group}/{plural}/x", {}))
    ] == [(405, "MethodNotAllowed"), (404, "NotFound")]


@pytest.mark.parametrize("path", ["/api/v1/bindings", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews"])
def test_what_can_only_be_created_in_a_namespace_does_not_exist_outside(api: Client, path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        refused = api.request(method, path, {})
        assert (refused.status, refused.reason) == (404, "NotFound"), (method, refused)


@pytest.mark.parametrize(
    ("segment", "problem"),
    [
        ("%2e", "\".\": may not be '.'"),
        ("%2e%2e", "\"..\": may not be '..'"),
        ("a%25b", "\"a%b\": may not contain '%'"),
    ],
)
def test_a_name_that_no_object_can_have_is_a_bad_request(space: Space, segment: str, problem: str) -> None:
    at = f"{space.path('configmaps')}/{segment}"
    requests: list[tuple[str, Any, str]] = [("GET", None, JSON), ("PATCH", {}, MERGE), ("DELETE", None, JSON)]
    for method, body, content_type in requests:
        refused = space.api.request(method, at, body, headers={"Content-Type": content_type})
        assert (refused.status, refused.message) == (400, f"Name parameter invalid: {problem}"), (method, refused)


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("a\0", r"a\x00"),
        ("a\x7fb", r"a\x7fb"),
        ("a\u2028é", r"a\u2028é"),
        ("\x07\n\ufeff\ue000", r"\a\n\ufeff\ue000"),
        ('q"\\\t\r', r"q\"\\\t\r"),
        ("<&>", "<&>"),
    ],
)
def test_values_in_messages_are_quoted_as_go_quotes_them(api: Client, value: str, quoted: str) -> None:
    refused = api.post("/api/v1/namespaces", {"metadata": {"name": value}})
    assert (refused.status, f'metadata.name: Invalid value: "{quoted}": ' in refused.message) == (422, True), refused


def test_the_values_of_field_validation_are_listed(api: Client) -> None:
    refused = api.post("/api/v1/namespaces", {"metadata": {"name": "x"}}, query={"fieldValidation": "Nope"})
    assert refused.message == (
        'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Nope": '
        'supported values: "", "Ignore", "Strict", "Warn"'
    )
