"""Rejections, warnings and their messages: a table of documents, checked against our reader and kube-apiserver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.schema.builtin import type_of
from torchyard.api.schema.document import FieldValidation, read, read_custom, read_object

POD = GroupVersionKind("", "v1", "Pod")
SECRET = GroupVersionKind("", "v1", "Secret")
DEPLOYMENT = GroupVersionKind("apps", "v1", "Deployment")
CRD = GroupVersionKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
COLLECTIONS = {
    POD: "/api/v1/namespaces/default/pods",
    SECRET: "/api/v1/namespaces/default/secrets",
    DEPLOYMENT: "/apis/apps/v1/namespaces/default/deployments",
    CRD: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


def pod(spec: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}]
    return {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": containers, **(spec or {})}, **top}


def container(**fields: Any) -> dict[str, Any]:
    return pod({"containers": [{"name": "c", "image": "i", **fields}]})


def probe(get: Any) -> dict[str, Any]:
    return container(livenessProbe={"httpGet": get})


def limits(cpu: Any) -> dict[str, Any]:
    return container(resources={"limits": {"cpu": cpu}})


def secret(value: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "data": {"a": value}}


TWICE = (
    '{"metadata":{"name":"x","labels":{"a":"1","a":"2"}},"spec":{"hostNetwork":true,"hostNetwork":false,'
    '"containers":[{"name":"c","image":"i","name":"c","foo":1,"foo":2}]}}'
)
UNKNOWN = pod({"containers": [{"name": "c", "image": "i", "zap": 1}], "foo": 1, "bar": None}, top=3)
NO_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NO_OBJECT = "the object provided is unrecognized (must be of type Pod): "
NO_JSON = NO_OBJECT + "couldn't get version/kind; json parse error: "
SCHEME = 'in scheme "pkg/runtime/scheme.go:110"'


def cannot(kind: str, reason: str) -> str:
    return f'{kind} in version "v1" cannot be handled as a {kind}: {reason}'


# a Pod document, its JSON type, the Go field, the Go type
MISFITS: list[tuple[dict[str, Any], str, str, str]] = [
    (pod({"hostNetwork": "true"}), "string", "PodSpec.spec.hostNetwork", "bool"),
    (pod({"hostname": 5}), "number", "PodSpec.spec.hostname", "string"),
    (pod({"hostname": {}}), "object", "PodSpec.spec.hostname", "string"),
    (pod({"restartPolicy": 5}), "number", "PodSpec.spec.restartPolicy", "v1.RestartPolicy"),
    (pod({"priority": "5"}), "string", "PodSpec.spec.priority", "int32"),
    (pod({"priority": 5.5}), "number 5.5", "PodSpec.spec.priority", "int32"),
    (pod({"priority": 5.0}), "number 5.0", "PodSpec.spec.priority", "int32"),
    (pod({"priority": 3000000000}), "number 3000000000", "PodSpec.spec.priority", "int32"),
    (pod({"priority": True}), "bool", "PodSpec.spec.priority", "int32"),
    (pod({"containers": {}}), "object", "PodSpec.spec.containers", "[]v1.Container"),
    (pod({"containers": ["x"]}), "string", "PodSpec.spec.containers", "v1.Container"),
    (pod({"securityContext": []}), "array", "PodSpec.spec.securityContext", "v1.PodSecurityContext"),
    (pod({"hostNetwork": "x", "hostPID": "y"}), "string", "PodSpec.spec.hostNetwork", "bool"),
    ({"spec": "x"}, "string", "Pod.spec", "v1.PodSpec"),
    ({"metadata": {"labels": {"a": 5}}}, "number", "ObjectMeta.metadata.labels", "string"),
    ({"metadata": {"labels": []}}, "array", "ObjectMeta.metadata.labels", "map[string]string"),
    ({"metadata": {"deletionTimestamp": 5}}, "number", "ObjectMeta.metadata.deletionTimestamp", "string"),
    (container(env=[{"value": 5}]), "number", "EnvVar.spec.containers.env.value", "string"),
    (container(args=[1]), "number", "Container.spec.containers.args", "string"),
    (probe({"port": 1.5}), "number 1.5", "HTTPGetAction.spec.containers.livenessProbe.httpGet.port", "int32"),
    (probe(1), "number", "Probe.spec.containers.livenessProbe.httpGet", "v1.HTTPGetAction"),
]
AMOUNTS: list[Any] = ["1x", "", True, {}]
BYTES = [("!!!", 0), ("YQ", 0), ("YWFhYQ", 4), ("YQ=a", 2), ("YQ==YQ==", 4), ("Y Q==", 1)]
# a text that is not valid JSON, and the message of Go's scanner
INVALID_JSON = [
    ("", "unexpected end of JSON input"),
    ('{"a":', "unexpected end of JSON input"),
    ('{"a":"b', "unexpected end of JSON input"),
    ('{"a" 1}', "invalid character '1' after object key"),
    ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
    ('{"a":[1 2]}', "invalid character '2' after array element"),
    ('{"a":[{"b":1}, 2}', "invalid character '}' after array element"),
    ('{"a":x}', "invalid character 'x' looking for beginning of value"),
    ('{"kind":"Pod",}', "invalid character '}' looking for beginning of object key string"),
    ('{"kind":"Pod"} x', "invalid character 'x' after top-level value"),
]
# kind, document, message
REFUSED: list[tuple[GroupVersionKind, Any, str]] = [
    *(
        (POD, document, cannot("Pod", f"json: cannot unmarshal {has} into Go struct field {field} of type {go}"))
        for document, has, field, go in MISFITS
    ),
    *((POD, limits(amount), cannot("Pod", NO_QUANTITY)) for amount in AMOUNTS),
    *((SECRET, secret(text), cannot("Secret", f"illegal base64 data at input byte {at}")) for text, at in BYTES),
    *((POD, text, f"{NO_JSON}{reason} ({text or '<empty>'})") for text, reason in INVALID_JSON),
    (
        SECRET,
        secret(5),
        cannot("Secret", "json: cannot unmarshal number into Go struct field Secret.data of type []uint8"),
    ),
    (
        DEPLOYMENT,
        {"spec": {"template": {"spec": {"hostNetwork": 1}}}},
        cannot(
            "Deployment",
            "json: cannot unmarshal number into Go struct field PodSpec.spec.template.spec.hostNetwork of type bool",
        ),
    ),
    (
        CRD,
        {"spec": {"versions": [{"schema": {"openAPIV3Schema": {"minimum": "x"}}}]}},
        cannot(
            "CustomResourceDefinition",
            "json: cannot unmarshal string into Go struct field "
            "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.minimum of type float64",
        ),
    ),
    (
        POD,
        {"kind": "Service", "apiVersion": "v1"},
        'Service in version "v1" cannot be handled as a Pod: converting (v1.Service) to (core.Pod): unknown conversion',
    ),
    (
        POD,
        {"kind": "Foo", "apiVersion": "v1"},
        f'Foo in version "v1" cannot be handled as a Pod: no kind "Foo" is registered for version "v1" {SCHEME}',
    ),
    (
        POD,
        {"kind": "Pod", "apiVersion": "foo/v9"},
        f'Pod in version "v9" cannot be handled as a Pod: no kind "Pod" is registered for version "foo/v9" {SCHEME}',
    ),
    (POD, {"apiVersion": "a/b/c"}, NO_OBJECT + 'unexpected GroupVersion string: a/b/c ({"apiVersion": "a/b/c"})'),
    (
        POD,
        {"apiVersion": 5},
        f'{NO_JSON}json: cannot unmarshal number into Go struct field .apiVersion of type string ({{"apiVersion": 5}})',
    ),
]


def text(document: Any) -> bytes:
    return (document if isinstance(document, str) else json.dumps(document)).encode()


def ours(
    kind: GroupVersionKind, document: Any, validation: FieldValidation = "Warn"
) -> tuple[dict[str, Any], list[str]]:
    type = type_of(kind)
    assert type is not None
    return read(text(document), kind, type, validation)


@pytest.mark.parametrize(("kind", "document", "message"), REFUSED, ids=lambda value: str(value)[:60])
def test_a_document_of_the_wrong_type_is_rejected_with_gos_message(
    kind: GroupVersionKind, document: Any, message: str
) -> None:
    with pytest.raises(StatusError) as refusal:
        ours(kind, document)
    assert (refusal.value.status, refusal.value.reason) == (400, "BadRequest")
    assert refusal.value.message == message


@pytest.mark.cluster
@pytest.mark.parametrize(("kind", "document", "message"), REFUSED, ids=lambda value: str(value)[:60])
def test_messages_about_wrong_types_match_kube_apiserver(
    kind: GroupVersionKind, document: Any, message: str, kube_bare: Server
) -> None:
    answer = kube_bare.admin.post(
        COLLECTIONS[kind], text(document), query={"dryRun": "All"}, headers={"Content-Type": "application/json"}
    )
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == message


AS_LAYOUT = ' as "2006-01-02T15:04:05Z07:00": cannot parse '
TIMES = [
    ("yesterday", AS_LAYOUT + '"yesterday" as "2006"'),
    ("", AS_LAYOUT + '"" as "2006"'),
    ("2020-01-02", AS_LAYOUT + '"" as "T"'),
    ("2020-01-02T03:04:05", AS_LAYOUT + '"" as "Z07:00"'),
    ("2020-13-02T03:04:05Z", ": month out of range"),
    ("2020-02-30T03:04:05Z", ": day out of range"),
    ("2020-01-02T25:04:05Z", ": hour out of range"),
    ("2020-01-02T03:04:05Zx", ': extra text: "x"'),
]


@pytest.mark.parametrize(("time", "message"), TIMES)
def test_an_invalid_time_is_rejected_with_its_element(time: str, message: str) -> None:
    with pytest.raises(StatusError) as refusal:
        ours(POD, {"metadata": {"deletionTimestamp": time}})
    assert refusal.value.message == cannot("Pod", f'parsing time "{time}"{message}')


@pytest.mark.cluster
@pytest.mark.parametrize(("time", "message"), TIMES)
def test_messages_about_invalid_times_match_kube_apiserver(time: str, message: str, kube_bare: Server) -> None:
    answer = kube_bare.admin.post(COLLECTIONS[POD], {"metadata": {"deletionTimestamp": time}})
    assert answer.message == cannot("Pod", f'parsing time "{time}"{message}')


def unknown(*fields: str) -> list[str]:
    return [f'unknown field "{field}"' for field in fields]


def duplicate(*fields: str) -> list[str]:
    return [f'duplicate field "{field}"' for field in fields]


STRICT_ERRORS: list[tuple[Any, list[str]]] = [
    (UNKNOWN, unknown("spec.containers[0].zap", "spec.foo", "spec.bar", "top")),
    (pod({"HostNetwork": True}), unknown("spec.HostNetwork")),
    (
        TWICE,
        duplicate("metadata.labels.a", "spec.hostNetwork", "spec.containers[0].name")
        + unknown("spec.containers[0].foo"),
    ),
    (pod(metadata={"name": "x", "annotations": {"a": '":"'}}), []),
]


@pytest.mark.parametrize(("document", "errs"), STRICT_ERRORS)
def test_unknown_and_duplicate_fields_cause_warnings_or_errors(document: Any, errs: list[str]) -> None:
    assert ours(POD, document)[1] == errs
    assert ours(POD, document, "Ignore")[1] == []
    if errs:
        with pytest.raises(StatusError) as refusal:
            ours(POD, document, "Strict")
        reason = f"strict decoding error: {', '.join(errs)}"
        assert refusal.value.message == cannot("Pod", reason)


@pytest.mark.cluster
@pytest.mark.parametrize(("document", "errs"), STRICT_ERRORS)
def test_strict_errors_match_kube_apiserver(document: Any, errs: list[str], kube_bare: Server) -> None:
    headers = {"Content-Type": "application/json"}
    answer = kube_bare.admin.post(COLLECTIONS[POD], text(document), query={"dryRun": "All"}, headers=headers)
    assert [json.loads(warning.removeprefix("299 - ")) for warning in answer.warnings] == errs


@pytest.mark.parametrize("labels", ['{"a" :"1","a":"2"}', '{"a":"\\u0022","a":"1"}', '{"a":"\\"","a"\n:"2"}'])
def test_duplicate_fields_are_found_in_any_spelling(labels: str) -> None:
    document = f'{{"metadata":{{"name":"x","labels":{labels}}}}}'
    assert ours(POD, document)[1] == duplicate("metadata.labels.a")


def test_a_missing_kind_is_set() -> None:
    assert ours(DEPLOYMENT, {"metadata": {"name": "x"}})[0]["apiVersion"] == "apps/v1"
    assert ours(POD, "null")[0]["kind"] == "Pod"


def test_a_parsed_document_is_decoded_the_same_way() -> None:
    type = type_of(POD)
    assert type is not None
    decoded, warnings = read_object(pod({"foo": 1, "hostNetwork": False}), POD, type)
    assert "hostNetwork" not in decoded["spec"]
    assert warnings == ['unknown field "spec.foo"']


def test_a_too_deeply_nested_schema_is_rejected() -> None:
    schema = '{"not":' * 900 + "{}" + "}" * 900
    body = f'{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}'
    with pytest.raises(StatusError, match="depth"):
        ours(CRD, body)


GIZMO = GroupVersionKind("custom.example.com", "v1", "Gizmo")
OTHER_VERSION = "the API version in the data ({}) does not match the expected API version (custom.example.com/v1)"
NO_KIND = "the object provided is unrecognized (must be of type Gizmo): Object 'Kind' is missing in "
NOT_CUSTOM: list[tuple[Any, int, str]] = [
    ({"kind": "Gizmo"}, 400, OTHER_VERSION.format("")),
    ({"kind": "Pod", "apiVersion": "v1"}, 400, OTHER_VERSION.format("v1")),
    ({"kind": "Gizmo", "apiVersion": "custom.example.com/v2"}, 400, OTHER_VERSION.format("custom.example.com/v2")),
    ({"apiVersion": "x"}, 400, NO_KIND + """'{"apiVersion": "x"}' ({"apiVersion": "x"})"""),
    ("null", 400, NO_KIND + "'null' (6e756c6c)"),
    (
        {"kind": "Foo", "apiVersion": "custom.example.com/v1", "metadata": {"name": "x"}},
        422,
        'Foo.custom.example.com "x" is invalid: kind: Invalid value: "Foo": must be Gizmo',
    ),
]


@pytest.mark.parametrize(("document", "status", "message"), NOT_CUSTOM)
def test_a_custom_object_must_have_its_kind(document: Any, status: int, message: str) -> None:
    with pytest.raises(StatusError) as refusal:
        read_custom(text(document), GIZMO)
    assert (refusal.value.status, refusal.value.message) == (status, message)


@pytest.fixture(scope="module")
def gizmos(kube_bare: Server) -> Iterator[str]:
    """The collection of a custom resource on a kube-apiserver."""
    definitions = COLLECTIONS[CRD]
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"kind": "Gizmo", "plural": "gizmos"}
    spec = {"group": GIZMO.group, "scope": "Cluster", "names": names, "versions": [version]}
    created = kube_bare.admin.post(definitions, {"metadata": {"name": "gizmos.custom.example.com"}, "spec": spec})
    assert created.status == 201, created
    path = "/apis/custom.example.com/v1/gizmos"
    eventually(lambda: kube_bare.admin.get(path).status == 200, "serving the custom resource")
    yield path
    kube_bare.admin.delete(f"{definitions}/gizmos.custom.example.com")


@pytest.mark.cluster
@pytest.mark.parametrize(("document", "status", "message"), NOT_CUSTOM)
def test_kind_checks_of_custom_objects_match_kube_apiserver(
    document: Any, status: int, message: str, gizmos: str, kube_bare: Server
) -> None:
    answer = kube_bare.admin.post(gizmos, text(document), headers={"Content-Type": "application/json"})
    assert (answer.status, answer.message) == (status, message)


def test_duplicate_fields_of_a_custom_object_are_found_at_any_depth() -> None:
    body = '{"apiVersion":"custom.example.com/v1","kind":"Gizmo","a":{"b":1,"b":2},"c":[{"d":{"e":1,"e":1}}]}'
    obj, twice = read_custom(body.encode(), GIZMO)
    assert obj["a"] == {"b": 2}
    assert twice == duplicate("a.b", "c[0].d.e")
