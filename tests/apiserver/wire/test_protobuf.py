"""Protobuf bodies: bytes written by hand, by a real kubectl and by a real API server, and malformed bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.schema.builtin import type_of
from torchyard.api.schema.document import read_object
from torchyard.apiserver.wire.protobuf import MEDIA_TYPE, decode

POD = GroupVersionKind("", "v1", "Pod")
CRD = GroupVersionKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
REVIEW = GroupVersionKind("authorization.k8s.io", "v1", "SubjectAccessReview")
NOTHING = GroupVersionKind("", "", "")


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def body(kind: GroupVersionKind, raw: bytes) -> bytes:
    return b"k8s\0" + block(1, block(1, kind.api_version) + block(2, kind.kind)) + block(2, raw)


def in_container(fields: bytes) -> dict[str, Any]:
    result: dict[str, Any] = decode(body(POD, block(2, block(2, fields))), POD)["spec"]["containers"][0]
    return result


NAME = block(1, block(1, "x"))
GOOD = body(POD, NAME + block(2, block(2, block(1, "c") + block(2, "image"))))


def test_an_object_is_decoded_with_its_kind() -> None:
    held = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "image"}]}}
    assert decode(GOOD, POD) == {"apiVersion": "v1", "kind": "Pod", **held}


def test_a_body_without_a_kind_is_taken_for_the_expected_one() -> None:
    assert decode(b"k8s\0" + block(2, NAME), POD)["kind"] == "Pod"


@pytest.mark.parametrize("group", ["", "apps", "batch"])
def test_delete_options_belong_to_every_group(group: str) -> None:
    kind = GroupVersionKind(group, "v1", "DeleteOptions")
    raw = number(1, 0) + block(2, block(1, "some-uid")) + block(4, "Foreground") + block(5, "All")
    assert decode(body(kind, raw), NOTHING) == {
        "apiVersion": kind.api_version,
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "some-uid"},
        "propagationPolicy": "Foreground",
        "dryRun": ["All"],
    }


def port(value: bytes) -> bytes:
    """A liveness probe: its handler is embedded in it, and in that the HTTP port."""
    return block(10, block(1, block(2, block(2, value))))


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        (number(16, 1), {"stdin": True}),
        (number(16, 0), {"stdin": False}),
        (block(3, "a") + block(3, "b"), {"command": ["a", "b"]}),
        (block(6, number(3, 8080)), {"ports": [{"containerPort": 8080}]}),
        (block(6, number(2, 2**64 - 1)), {"ports": [{"hostPort": -1}]}),
        (block(8, block(1, block(1, "cpu") + block(2, block(1, "500m")))), {"resources": {"limits": {"cpu": "500m"}}}),
        (block(8, block(1, block(1, "cpu"))), {"resources": {"limits": {"cpu": "0"}}}),
        (port(number(1, 0) + number(2, 80)), {"livenessProbe": {"httpGet": {"port": 80}}}),
        (port(number(1, 1) + block(3, "web")), {"livenessProbe": {"httpGet": {"port": "web"}}}),
        (block(15, block(99, "a field of the future")), {"securityContext": {}}),
        (block(1, b"\xff"), {"name": "�"}),
    ],
)
def test_values_of_every_type_are_decoded(fields: bytes, held: dict[str, Any]) -> None:
    assert in_container(fields) == held


def test_times_are_null_when_zero_and_cut_to_their_precision() -> None:
    stamp = number(1, 1577934245) + number(2, 678912345)
    pod = decode(body(POD, block(1, block(8, stamp) + block(9, b""))), POD)
    assert pod["metadata"] == {"creationTimestamp": "2020-01-02T03:04:05Z", "deletionTimestamp": None}
    lease = GroupVersionKind("coordination.k8s.io", "v1", "Lease")
    held = decode(body(lease, block(2, block(4, stamp))), lease)
    assert held["spec"] == {"renewTime": "2020-01-02T03:04:05.678912Z"}


def test_repeated_numbers_may_be_packed_or_not() -> None:
    context = body(POD, block(2, block(14, number(4, 1000) + block(4, varint(2000) + varint(3000)))))
    assert decode(context, POD)["spec"]["securityContext"] == {"supplementalGroups": [1000, 2000, 3000]}


def test_secrets_are_base64() -> None:
    secret = GroupVersionKind("", "v1", "Secret")
    assert decode(body(secret, block(2, block(1, "k") + block(2, b"\0\1"))), secret)["data"] == {"k": "AAE="}


def test_lists_within_maps_are_decoded() -> None:
    raw = block(2, block(5, block(1, "scopes") + block(2, block(1, "a") + block(1, "b"))))
    assert decode(body(REVIEW, raw), REVIEW)["spec"]["extra"] == {"scopes": ["a", "b"]}


def test_managed_fields_are_json_within() -> None:
    raw = block(1, block(17, block(1, "me") + block(7, block(1, '{"f:spec":{}}'))))
    assert decode(body(POD, raw), POD)["metadata"]["managedFields"] == [{"manager": "me", "fieldsV1": {"f:spec": {}}}]


MALFORMED = [
    (NAME[:-1], "unexpected EOF"),
    (varint(1 << 3 | 2) + varint(2**40), "unexpected EOF"),
    (varint(1 << 3 | 2) + varint(2**64 - 1), "proto: negative length found during unmarshaling"),
    (b"\xff" * 12, "proto: integer overflow"),
    (number(1, 5), "proto: wrong wireType = 0 for field ObjectMeta"),
    (number(0, 5), "proto: Pod: illegal tag 0 (wire type 0)"),
    (varint(1 << 3 | 4), "proto: Pod: wiretype end group for non-group"),
]


@pytest.mark.parametrize(("raw", "reason"), MALFORMED)
def test_malformed_messages_are_rejected_with_gos_messages(raw: bytes, reason: str) -> None:
    with pytest.raises(StatusError) as refusal:
        decode(body(POD, raw), POD)
    assert refusal.value.status == 400
    assert refusal.value.message == f'Pod in version "v1" cannot be handled as a Pod: {reason}'


@pytest.mark.cluster
@pytest.mark.parametrize(("raw", "reason"), MALFORMED)
def test_a_real_server_rejects_them_with_the_same_messages(raw: bytes, reason: str, kube_bare: Server) -> None:
    path, headers = "/api/v1/namespaces/default/pods", {"Content-Type": MEDIA_TYPE}
    answer = kube_bare.admin.post(path, body(POD, raw), headers=headers)
    assert answer.message == f'Pod in version "v1" cannot be handled as a Pod: {reason}'


@pytest.mark.parametrize("sent", [b"", b"k8s\0", b"{}", GOOD[:20], b"k8s\0" + number(2, 7)])
def test_a_body_without_an_envelope_is_rejected(sent: bytes) -> None:
    with pytest.raises(StatusError, match=r"the object provided is unrecognized \(must be of type Pod\)"):
        decode(sent, POD)


def test_a_kind_without_a_protobuf_message_is_rejected_by_name() -> None:
    unknown = GroupVersionKind("example.com", "v1", "Widget")
    with pytest.raises(StatusError, match=r'no kind "Widget" is registered for version "example\.com/v1"'):
        decode(body(unknown, b""), POD)


def test_unbounded_nesting_is_rejected() -> None:
    schema = b""
    for _ in range(2000):
        schema = block(28, schema)  # `not`: a schema within a schema
    with pytest.raises(StatusError, match="depth"):
        decode(body(CRD, block(2, block(7, block(4, block(1, schema))))), CRD)


@given(st.binary(max_size=300), st.sampled_from([POD, CRD, REVIEW]))
def test_arbitrary_bytes_are_decoded_or_rejected(raw: bytes, kind: GroupVersionKind) -> None:
    for sent in (raw, b"k8s\0" + raw, body(kind, raw)):
        try:
            assert decode(sent, kind)["kind"]
        except StatusError as refusal:
            assert refusal.status == 400


@given(st.data())
def test_a_damaged_body_is_decoded_or_rejected(data: st.DataObject) -> None:
    damaged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(damaged), POD)
    except StatusError as refusal:
        assert refusal.status == 400


PREFERENCE = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
POD_SPEC: dict[str, Any] = {
    "containers": [
        {
            "name": "c",
            "image": "i",
            "args": ["a", ""],
            "env": [
                {"name": "A", "value": "b"},
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "ports": [{"containerPort": 80, "name": "http"}],
            "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"port": "http", "path": "/", "httpHeaders": [{"name": "A", "value": "b"}]}},
            "readinessProbe": {"tcpSocket": {"port": 80}},
            "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
            "securityContext": {"runAsUser": 0, "privileged": False, "capabilities": {"add": ["NET_ADMIN"]}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }
    ],
    "volumes": [
        {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "p", "projected": {"sources": [{"configMap": {"name": "c", "optional": True}}]}},
    ],
    "securityContext": {"supplementalGroups": [1, 2], "fsGroup": 3},
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": PREFERENCE}],
        }
    },
}
DEPLOYMENT = {
    "replicas": 0,
    "selector": {"matchLabels": {"a": "b"}},
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC},
    "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
}
METRIC = {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "100m"}}
AUTOSCALER = {
    "maxReplicas": 2,
    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "A", "name": "b"},
    "metrics": [{"type": "Resource", "resource": METRIC}],
}
SCHEMA = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 0.5, "default": 3},
        "list": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
    },
}
DEFINITION = {
    "group": "a.b",
    "scope": "Cluster",
    "names": {"kind": "X", "plural": "xs"},
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
}
IN_DEFAULT = "namespaces/default"
CREATED: list[tuple[str, str, dict[str, Any]]] = [
    (f"/api/v1/{IN_DEFAULT}/pods", "p", {"spec": POD_SPEC}),
    (f"/api/v1/{IN_DEFAULT}/secrets", "s", {"data": {"a": "AAE=", "b": ""}}),
    (f"/api/v1/{IN_DEFAULT}/configmaps", "c", {"binaryData": {"a": "AAE="}, "immutable": False}),
    (f"/api/v1/{IN_DEFAULT}/events", "e", {"involvedObject": {"namespace": "default"}, "count": 1}),
    (f"/apis/apps/v1/{IN_DEFAULT}/deployments", "d", {"spec": DEPLOYMENT}),
    (f"/apis/batch/v1/{IN_DEFAULT}/jobs", "j", {"spec": {"template": {"spec": POD_SPEC | {"restartPolicy": "Never"}}}}),
    (f"/apis/coordination.k8s.io/v1/{IN_DEFAULT}/leases", "l", {"spec": {"renewTime": "2020-01-02T03:04:05.678912Z"}}),
    (f"/apis/autoscaling/v2/{IN_DEFAULT}/horizontalpodautoscalers", "h", {"spec": AUTOSCALER}),
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "xs.a.b", {"spec": DEFINITION}),
]
READ = [
    "/api/v1/namespaces/default",
    "/api/v1/services",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
]


def read_back(raw: bytes) -> dict[str, Any]:
    """A protobuf response in the form of a request body."""
    obj = decode(raw, NOTHING)
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = GroupVersionKind(group, version, obj["kind"])
    type = type_of(kind)
    assert type is not None
    return read_object(obj, kind, type)[0]


@pytest.mark.cluster
@pytest.mark.parametrize(("path", "name", "obj"), CREATED, ids=[path.rpartition("/")[2] for path, _, _ in CREATED])
def test_protobuf_of_a_real_server_decodes_to_its_json(
    path: str, name: str, obj: dict[str, Any], kube_bare: Server
) -> None:
    created = kube_bare.admin.post(path, {"metadata": {"name": name, "annotations": {"a": "ü"}}, **obj})
    assert created.status == 201, created
    target = f"{path}/{name}"
    try:
        as_protobuf = kube_bare.admin.get(target, headers={"Accept": MEDIA_TYPE})
        as_json = kube_bare.admin.get(target)
        # a CRD's status and version change on their own
        if "customresource" not in path:
            assert read_back(as_protobuf.body) == as_json.json
        assert read_back(as_protobuf.body).get("spec") == as_json.json.get("spec")
    finally:
        kube_bare.admin.delete(target, query={"gracePeriodSeconds": "0"})


@pytest.mark.cluster
@pytest.mark.parametrize("path", READ)
def test_lists_and_system_objects_of_a_real_server_decode_to_their_json(path: str, kube_bare: Server) -> None:
    as_protobuf = kube_bare.admin.get(path, headers={"Accept": MEDIA_TYPE})
    result, expected = read_back(as_protobuf.body), kube_bare.admin.get(path).json
    if "items" in expected:  # a list read later is of a later version, and its items do not repeat their kind
        del result["metadata"]["resourceVersion"], expected["metadata"]["resourceVersion"]
    assert result == expected


@contextmanager
def recorder() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that records what is posted to it and rejects everything."""
    posted: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append((self.headers["Content-Type"], self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", posted
        server.shutdown()


COMMANDS: list[tuple[str, dict[str, Any]]] = [
    ("create namespace x", {"kind": "Namespace", "metadata": {"name": "x"}}),
    ("create configmap x --from-literal=a=b", {"kind": "ConfigMap", "data": {"a": "b"}}),
    ("create secret generic x --from-literal=a=b", {"kind": "Secret", "data": {"a": "Yg=="}}),
    ("create quota x --hard=cpu=1000m,pods=2", {"kind": "ResourceQuota", "spec": {"hard": {"cpu": "1", "pods": "2"}}}),
    ("create token x --duration=1h", {"spec": {"expirationSeconds": 3600, "boundObjectRef": None}}),
    ("create deployment x --image=i --replicas=3 --port=80", {"kind": "Deployment", "apiVersion": "apps/v1"}),
    ("create job x --image=i", {"kind": "Job", "apiVersion": "batch/v1"}),
    ("auth whoami", {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}),
    (
        "create pdb x --selector=a=b --min-available=50%",
        {"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}},
    ),
]


@pytest.mark.clients
def test_bodies_of_kubectl_are_decoded(kubectl: Kubectl, tmp_path: Path) -> None:
    if kubectl.minor < 32:
        pytest.skip("kubectl sends JSON before 1.32")
    for command, expected in COMMANDS:
        with recorder() as (url, posted):
            refused = kubectl.using(tmp_path / "none", tmp_path).run("--server", url, *command.split())
        assert posted, refused.stderr
        media_type, sent = posted[0]
        assert media_type == MEDIA_TYPE
        result = read_back(sent)
        assert {key: result.get(key) for key in expected} == expected
