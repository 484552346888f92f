"""Points 1 to 7: creation, valid names, accepted bodies."""

from __future__ import annotations

import json
import re
import struct
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conformance.differences import expected
from tests.conformance.objects import Space, config_map, deployment, pod, service
from tests.support.http import Client
from tests.support.kubernetes import Server

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@pytest.mark.point(1)
def test_create_sets_what_the_server_owns_and_drops_what_a_client_must_not_set(space: Space) -> None:
    created = space.make("pods", pod("p", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", selfLink="/x"))
    metadata = created["metadata"]
    assert uuid.UUID(metadata["uid"]).version == 4
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert datetime.now(UTC) - datetime.fromisoformat(metadata["creationTimestamp"]) < timedelta(minutes=1)
    assert re.fullmatch(r"[1-9]\d*", metadata["resourceVersion"])
    assert metadata["generation"] == 1
    assert "selfLink" not in metadata
    assert metadata["namespace"] == space.name
    (entry,) = metadata["managedFields"]
    assert entry["operation"] == "Update"
    assert entry["apiVersion"] == "v1"
    assert entry["fieldsType"] == "FieldsV1"
    assert "f:containers" in entry["fieldsV1"]["f:spec"]
    assert created["apiVersion"] == "v1"
    assert created["kind"] == "Pod"


@pytest.mark.point(1)
def test_the_field_manager_is_the_query_parameter_or_the_user_agent(space: Space) -> None:
    named = space.api.post(space.path("configmaps"), config_map("a"), query={"fieldManager": "me"}).json
    agent = space.api.post(space.path("configmaps"), config_map("b"), headers={"User-Agent": "tool/v1.2 (linux)"}).json
    assert [m["metadata"]["managedFields"][0]["manager"] for m in (named, agent)] == ["me", "tool"]


@pytest.mark.point(1)
def test_namespace_and_name_in_the_body_must_agree_with_the_path(space: Space) -> None:
    refused = space.api.post(space.path("configmaps"), config_map("a", namespace="other"))
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert refused.message == "the namespace of the provided object does not match the namespace sent on the request"
    space.make("configmaps", config_map("a"))
    refused = space.api.put(space.path("configmaps", "a"), config_map("b"))
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert refused.message == "the name of the object (b) does not match the name on the URL (a)"
    nameless = space.api.put(space.path("configmaps", "a"), config_map())
    assert (nameless.status, nameless.message) == (
        400,
        "the name of the object (a based on URL) was undeterminable: name must be provided",
    )


@pytest.mark.point(2)
def test_create_of_an_existing_name_is_already_exists(space: Space) -> None:
    space.make("configmaps", config_map("a"))
    refused = space.api.post(space.path("configmaps"), config_map("a"))
    assert (refused.status, refused.reason) == (409, "AlreadyExists")
    assert refused.message == 'configmaps "a" already exists'
    assert refused.json["details"] == {"name": "a", "kind": "configmaps"}
    space.make("deployments", deployment("d"))
    refused = space.api.post(space.path("deployments"), deployment("d"))
    assert refused.message == 'deployments.apps "d" already exists'
    assert refused.json["details"] == {"name": "d", "group": "apps", "kind": "deployments"}


@pytest.mark.point(3)
def test_create_with_a_numeric_version_is_rejected_and_any_other_is_ignored(server: Server, space: Space) -> None:
    refused = space.api.post(space.path("configmaps"), config_map("a", resourceVersion="17"))
    assert refused.status == expected(server, "create-with-resource-version")
    assert refused.message == "resourceVersion should not be set on objects to be created"
    created = space.make("services", service("s", resourceVersion="v1"))
    assert created["metadata"]["resourceVersion"].isdigit()


@pytest.mark.point(4)
def test_generate_name_truncates_the_base_and_appends_five_letters(space: Space) -> None:
    created = space.make("configmaps", config_map(generateName="worker-"))
    assert re.fullmatch(f"worker-[{ALPHABET}]{{5}}", created["metadata"]["name"])
    assert created["metadata"]["generateName"] == "worker-"
    long = space.make("configmaps", config_map(generateName="x" * 80))
    assert re.fullmatch(f"x{{58}}[{ALPHABET}]{{5}}", long["metadata"]["name"])
    names = {space.make("configmaps", config_map(generateName="many-"))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20


@pytest.mark.point(4)
def test_a_name_or_generate_name_is_required(space: Space) -> None:
    refused = space.api.post(space.path("configmaps"), config_map())
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert refused.message == 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    assert refused.causes == [
        {
            "reason": "FieldValueRequired",
            "message": "Required value: name or generateName is required",
            "field": "metadata.name",
        }
    ]


BAD_NAMES = [
    ("configmaps", config_map("Upper"), "metadata.name", "FieldValueInvalid"),
    ("configmaps", config_map("under_score"), "metadata.name", "FieldValueInvalid"),
    ("configmaps", config_map("a" * 254), "metadata.name", "FieldValueInvalid"),
    ("services", service("1st"), "metadata.name", "FieldValueInvalid"),
    ("services", service("a.b"), "metadata.name", "FieldValueInvalid"),
    ("configmaps", config_map("a", labels={"bad key": "v"}), "metadata.labels", "FieldValueInvalid"),
    ("configmaps", config_map("a", labels={"x" * 64: "v"}), "metadata.labels", "FieldValueInvalid"),
    ("configmaps", config_map("a", labels={"k": "v" * 64}), "metadata.labels", "FieldValueInvalid"),
    ("configmaps", config_map("a", labels={"k": "-v"}), "metadata.labels", "FieldValueInvalid"),
    ("configmaps", config_map("a", annotations={"a/b/c": "v"}), "metadata.annotations", "FieldValueInvalid"),
    ("configmaps", config_map("a", annotations={"k": "v" * 262145}), "metadata.annotations", "FieldValueTooLong"),
    ("configmaps", config_map("a", finalizers=["not qualified"]), "metadata.finalizers", "FieldValueInvalid"),
    ("configmaps", config_map("a", ownerReferences=[{}]), "metadata.ownerReferences", "FieldValueInvalid"),
]


@pytest.mark.point(5)
@pytest.mark.parametrize(("resource", "obj", "field", "reason"), BAD_NAMES, ids=[f"{i}" for i in range(len(BAD_NAMES))])
def test_bad_names_labels_annotations_and_finalizers_are_invalid_with_causes(
    space: Space, resource: str, obj: dict[str, Any], field: str, reason: str
) -> None:
    refused = space.api.post(space.path(resource), obj)
    assert (refused.status, refused.reason) == (422, "Invalid"), refused
    cause = next((c for c in refused.causes if c["field"].startswith(field)), None)
    assert cause is not None, refused
    assert cause["reason"] == reason


@pytest.mark.point(5)
def test_valid_names_labels_and_annotations_are_accepted(space: Space, api: Client) -> None:
    labels = {"a": "", "example.com/name": "Mixed_Case.1-x", "x" * 63: "y" * 63}
    created = space.make("configmaps", config_map("a.b-c." + "d" * 240, labels=labels, annotations={"free": "text ✓"}))
    assert created["metadata"]["labels"] == labels
    assert created["metadata"]["annotations"] == {"free": "text ✓"}
    too_long = api.post("/api/v1/namespaces", {"metadata": {"name": "n" * 64}})
    dotted = api.post("/api/v1/namespaces", {"metadata": {"name": "a.b"}})
    assert [(r.status, r.causes[0]["field"]) for r in (too_long, dotted)] == [(422, "metadata.name")] * 2


@pytest.mark.point(5)
def test_the_message_states_the_rule(space: Space) -> None:
    refused = space.api.post(space.path("configmaps"), config_map("Upper"))
    assert refused.message == (
        'ConfigMap "Upper" is invalid: metadata.name: Invalid value: "Upper": a lowercase RFC 1123 subdomain must '
        "consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
        "character (e.g. 'example.com', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )
    assert refused.json["details"]["kind"] == "ConfigMap"
    assert refused.json["details"]["name"] == "Upper"


@pytest.mark.point(6)
def test_unsupported_bodies_and_media_types_are_rejected_with_their_own_status(space: Space) -> None:
    at = space.path("configmaps")
    big = config_map("big", {"k": "x" * (3 * 1024 * 1024)})
    json_type = {"Content-Type": "application/json"}
    requests: list[tuple[str, str, Any, dict[str, str], int, str]] = [
        ("POST", at, big, json_type, 413, "RequestEntityTooLarge"),
        ("POST", at, config_map("a"), {"Content-Type": "text/plain"}, 415, "UnsupportedMediaType"),
        ("GET", at, None, {"Accept": "text/html"}, 406, "NotAcceptable"),
        ("PUT", at, config_map("a"), json_type, 405, "MethodNotAllowed"),
        ("POST", at, b"{not json", json_type, 400, "BadRequest"),
        ("POST", at, b"", json_type, 400, "BadRequest"),
        ("POST", at, b"[]", json_type, 400, "BadRequest"),
        ("POST", at, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}, json_type, 400, "BadRequest"),
        ("PATCH", f"{at}/x", {}, {"Content-Type": "application/json"}, 415, "UnsupportedMediaType"),
        ("GET", f"{at}?limit=99999999999999999999", None, {}, 400, "BadRequest"),
        ("GET", f"{at}?limit=1_0", None, {}, 400, "BadRequest"),
    ]
    for method, target, body, headers, status, reason in requests:
        refused = space.api.request(method, target, body, headers=headers)
        assert (refused.status, refused.reason) == (status, reason), (method, target, refused)
        assert refused.json["kind"] == "Status"
        assert refused.headers["Content-Type"] == "application/json"


@pytest.mark.point(6)
def test_an_unserved_path_is_not_found(api: Client) -> None:
    for target in ("/api/v1/nothings", "/apis/nobody.example/v1/things", "/apis/apps/v9/deployments"):
        refused = api.get(target)
        assert refused.status == 404, target
        assert refused.text.strip() == "404 page not found" or refused.message == (
            "the server could not find the requested resource"
        )


@pytest.mark.point(7)
def test_yaml_bodies_are_accepted(space: Space) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: from-yaml\ndata:\n  a: '1'\n"
    created = space.api.post(space.path("configmaps"), text, headers={"Content-Type": "application/yaml"})
    assert created.status == 201, created
    assert created.json["data"] == {"a": "1"}
    # YAML 1.1, as every Kubernetes tool reads it: a bare y, yes or on is a boolean, so it is no name.
    for word in ("y", "yes", "on"):
        body = text.replace("from-yaml", word)
        refused = space.api.post(space.path("configmaps"), body, headers={"Content-Type": "application/yaml"})
        assert (refused.status, refused.reason) == (400, "BadRequest"), refused


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def protobuf_config_map(name: str, data: dict[str, str]) -> bytes:
    """`k8s\\0` and a runtime.Unknown whose raw is the ConfigMap, as client-go sends it."""
    raw = _field(1, _field(1, name.encode()))
    for key, value in data.items():
        raw += _field(2, _field(1, key.encode()) + _field(2, value.encode()))
    return b"k8s\x00" + _field(1, _field(1, b"v1") + _field(2, b"ConfigMap")) + _field(2, raw)


@pytest.mark.point(7)
def test_protobuf_bodies_are_accepted_and_json_is_returned_to_clients_that_accept_both(space: Space) -> None:
    body = protobuf_config_map("pb", {"a": "1", "b": "x" * 300})
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf", "Accept": "application/json"}
    created = space.api.post(space.path("configmaps"), body, headers=headers)
    assert created.status == 201, created
    assert created.json["data"] == {"a": "1", "b": "x" * 300}
    assert space.get("configmaps", "pb")["data"] == created.json["data"]
    for broken in (b"k8s\x00\xff\xff\xff", body[4:], body[: len(body) // 2], struct.pack("<Q", 1)):
        refused = space.api.post(space.path("configmaps"), broken, headers=headers)
        assert (refused.status, refused.reason) == (400, "BadRequest"), refused


@pytest.mark.point(7)
def test_unknown_fields_follow_the_field_validation_of_the_request(space: Space) -> None:
    obj = json.loads(json.dumps(pod("strict")))
    obj["spec"]["containers"][0]["imagePullpolicy"] = "Always"
    at = space.path("pods")
    refused = space.api.post(at, obj, query={"fieldValidation": "Strict"})
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.containers[0].imagePullpolicy"' in refused.message
    warned = space.api.post(at, obj, query={"fieldValidation": "Warn", "dryRun": "All"})
    assert warned.status == 201
    assert warned.warnings == ['299 - "unknown field \\"spec.containers[0].imagePullpolicy\\""']
    ignored = space.api.post(at, obj, query={"fieldValidation": "Ignore"})
    assert (ignored.status, ignored.warnings) == (201, [])
    assert "imagePullpolicy" not in ignored.json["spec"]["containers"][0]
    twice = '{"metadata":{"name":"dup"},"data":{"a":"1","a":"2"}}'
    refused = space.api.post(
        space.path("configmaps"),
        twice,
        query={"fieldValidation": "Strict"},
        headers={"Content-Type": "application/json"},
    )
    assert (refused.status, 'duplicate field "data.a"' in refused.message) == (400, True), refused
