"""OpenAPI documents: the schemas and operations of a real API server, read by every kubectl of this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server

from torchyard.api.builtins import builtin_resources
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.resources import Resource, Subresource
from torchyard.api.schema.builtin import definition, definition_names
from torchyard.api.schema.descriptions import describe, descriptions
from torchyard.apiserver.wire import discovery, openapi

VERSIONS = sorted(
    {(builtin_resource.group, builtin_resource.version) for builtin_resource in builtin_resources()}
    - {("metrics.k8s.io", "v1beta1")}
)
SCHEMA = {
    "type": "object",
    "description": "A widget of the tests.",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer", "format": "int32", "default": 1, "description": "How many."},
                "size": {"x-kubernetes-int-or-string": True},
                "embedded": {"type": "object", "x-kubernetes-embedded-resource": True},
                "list": {"type": "array", "items": {"x-kubernetes-int-or-string": True}},
            },
        }
    },
}
VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
WIDGET = GroupVersionKind("example.com", "v1", "Widget")


def widgets(schema: dict[str, Any] | None = None) -> Resource:
    scale = GroupVersionKind("autoscaling", "v1", "Scale")
    return Resource(
        group=WIDGET.group,
        version=WIDGET.version,
        plural="widgets",
        singular="widget",
        kind=WIDGET.kind,
        namespaced=True,
        verbs=VERBS,
        subresources={"scale": Subresource("scale", scale, ("get", "patch", "update"))},
        custom=SimpleNamespace(schema=schema or SCHEMA),
    )


def document(group: str, version: str, *more: Resource) -> dict[str, Any]:
    created = openapi.document([*builtin_resources(), *more], group, version)
    assert created is not None
    return created


def bare(node: Any) -> Any:
    """A schema without descriptions and without the default list and map types."""
    if isinstance(node, list):
        return [bare(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    if list(node) == ["allOf"]:
        return bare(node["allOf"][0])
    if "additionalProperties" in node and node.get("x-kubernetes-map-type") == "granular":
        node = {key: value for key, value in node.items() if key != "x-kubernetes-map-type"}
    if node.get("x-kubernetes-list-type") == "atomic":
        node = {key: value for key, value in node.items() if key != "x-kubernetes-list-type"}
    remaining = {
        key: value
        for key, value in node.items()
        if not (key == "description" and isinstance(value, str)) and key != "x-kubernetes-unions"
    }
    if list(remaining) == ["allOf"]:
        return bare(remaining["allOf"][0])
    return {
        key: sorted(value) if key == "required" and isinstance(value, list) else bare(value)
        for key, value in remaining.items()
    }


# Every group has its own kind of these; we name none.
EVERYWHERE = ("DeleteOptions", "WatchEvent", "Status")


@pytest.mark.cluster
@pytest.mark.parametrize(("group", "version"), VERSIONS)
def test_the_schemas_are_a_real_servers(group: str, version: str, kube_bare: Server) -> None:
    real = kube_bare.admin.get(f"/openapi/v3/{openapi.path_of(group, version)}").json["components"]["schemas"]
    ours = document(group, version)["components"]["schemas"]
    assert ours.keys() <= real.keys()
    for name, schema in ours.items():
        if name.rpartition(".")[2] not in EVERYWHERE:
            assert bare(schema) == bare(real[name]), name


def operations(document: dict[str, Any]) -> dict[tuple[str, str], tuple[Any, ...]]:
    result = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "parameters" and operation.get("x-kubernetes-action"):
                content = sorted(operation.get("requestBody", {}).get("content", {"-": 0}))
                patches = content if method == "patch" else []
                action = operation["x-kubernetes-action"]
                kind = operation["x-kubernetes-group-version-kind"]
                result[path, method] = (operation["operationId"], operation["tags"], action, kind, patches)
    return result


@pytest.mark.cluster
@pytest.mark.parametrize(("group", "version"), VERSIONS)
def test_the_operations_are_a_real_servers(group: str, version: str, kube_bare: Server) -> None:
    real = operations(kube_bare.admin.get(f"/openapi/v3/{openapi.path_of(group, version)}").json)
    ours = operations(document(group, version))
    # connections pass any method on, and old watches have paths of their own
    expected = {key: value for key, value in real.items() if value[2] not in ("connect", "watch", "watchlist")}
    result = {key: value for key, value in ours.items() if value[2] != "connect"}
    for value in (*expected.values(), *result.values()):
        if "application/apply-patch+cbor" in value[4]:
            value[4].remove("application/apply-patch+cbor")
    assert result == expected


def test_a_write_takes_the_parameters_kubectl_looks_for() -> None:
    patch = document("batch", "v1")["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"]
    assert {"dryRun", "fieldValidation", "fieldManager", "force"} <= {entry["name"] for entry in patch["parameters"]}


def test_a_custom_resource_is_merged_but_not_strategically() -> None:
    created = document(WIDGET.group, WIDGET.version, widgets())
    patch = created["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert sorted(patch["requestBody"]["content"]) == [
        *("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
    ]
    assert patch["x-kubernetes-group-version-kind"] == WIDGET._asdict()


def test_a_custom_resource_has_its_own_schema_and_the_common_fields() -> None:
    schemas = document(WIDGET.group, WIDGET.version, widgets())["components"]["schemas"]
    widget = schemas["com.example.v1.Widget"]
    assert widget["description"] == "A widget of the tests."
    assert widget["properties"].keys() == {"apiVersion", "kind", "metadata", "spec"}
    spec = widget["properties"]["spec"]["properties"]
    assert spec["replicas"] == SCHEMA["properties"]["spec"]["properties"]["replicas"]  # type: ignore[index]
    either = [{"type": "integer"}, {"type": "string"}]
    assert spec["size"]["anyOf"] == spec["list"]["items"]["anyOf"] == either
    assert spec["embedded"]["required"] == ["apiVersion", "kind"]
    assert schemas["com.example.v1.WidgetList"]["properties"]["items"]["items"]["$ref"].endswith(
        "com.example.v1.Widget"
    )


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_reference_resolves() -> None:
    resources = [*builtin_resources(), widgets()]
    for group, version in {(item.group, item.version) for item in resources}:
        created = document(group, version, widgets())
        known = {f"#/components/schemas/{name}" for name in created["components"]["schemas"]}
        assert set(references(created)) <= known
    old = openapi.swagger(resources)
    assert set(references(old)) <= {f"#/definitions/{name}" for name in old["definitions"]}


def test_version_2_says_nothing_about_the_fields_of_an_object_with_unknown_fields() -> None:
    opened = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "string"}}}
    nested = {"type": "object", "properties": {"spec": {**opened, "description": "Anything."}}}
    name = "com.example.v1.Widget"
    assert set(openapi.swagger([widgets(opened)])["definitions"][name]) == {"type", "x-kubernetes-group-version-kind"}
    spec = openapi.swagger([widgets(nested)])["definitions"][name]["properties"]["spec"]
    assert spec == {"description": "Anything.", "x-kubernetes-preserve-unknown-fields": True}


def test_the_index_names_every_version_and_its_hash_changes_with_it() -> None:
    before = openapi.index([*builtin_resources(), widgets()])["paths"]
    after = openapi.index([*builtin_resources(), widgets({"type": "object"})])["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/autoscaling/v2", "apis/example.com/v1"} <= before.keys()
    assert before["apis/batch/v1"] == after["apis/batch/v1"]
    assert before["apis/example.com/v1"] != after["apis/example.com/v1"]
    assert before["api/v1"]["serverRelativeURL"].startswith("/openapi/v3/api/v1?hash=")


def test_an_unserved_group_version_has_no_document() -> None:
    assert openapi.document(builtin_resources(), "example.com", "v1") is None


def test_the_version_2_document_has_only_version_2_keywords() -> None:
    text = json.dumps(openapi.swagger([*builtin_resources(), widgets()]))
    assert '"oneOf": [' not in text
    assert "#/components/" not in text


def test_only_fields_that_exist_are_described() -> None:
    known = set(definition_names())
    for name, (_, fields) in descriptions().items():
        if name and not name.startswith("*"):
            assert name in known
            assert fields.keys() <= definition(name).fields.keys(), name
    assert sum(len(entry.fields) for entry in descriptions().values()) >= 150


WRITTEN = ["core.v1.PodSpec", "core.v1.Container", "core.v1.ServiceSpec", "core.v1.PersistentVolumeClaimSpec"]
WRITTEN += ["core.v1.EnvVar", "core.v1.Probe", "batch.v1.JobSpec", "batch.v1.JobStatus", "batch.v1.CronJobSpec"]
WRITTEN += ["apps.v1.DeploymentSpec", "apps.v1.StatefulSetSpec", "core.v1.ConfigMap", "core.v1.Secret"]
WRITTEN += ["core.v1.GRPCAction", "core.v1.LifecycleHandler", "apps.v1.StatefulSetStatus", "apps.v1.DaemonSetStatus"]
WRITTEN += ["apps.v1.RollingUpdateDaemonSet", "autoscaling.v2.MetricSpec", "autoscaling.v2.HPAScalingRules"]
WRITTEN += ["certificates.v1.CertificateSigningRequestSpec", "admissionregistration.v1.ValidatingWebhook"]
WRITTEN += ["core.v1.NodeCondition", "apps.v1.DaemonSetCondition", "core.v1.PodList"]


@pytest.mark.parametrize("name", WRITTEN)
def test_every_field_of_common_kinds_is_described(name: str) -> None:
    full = f"io.k8s.api.{name}"
    assert definition(full).fields.keys() <= describe(full).fields.keys()


@dataclass
class Plane:
    """As much of an API server as kubectl needs to explain, create and apply."""

    resources: list[Resource]
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    patches: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    def get(self, path: str, accept: str) -> tuple[str, bytes] | None:
        form = discovery.accepted(accept)
        if path in ("/api", "/apis") and form:
            created = discovery.aggregated(self.resources, core=path == "/api", version=form)
            return discovery.content_type(form), json.dumps(created).encode()
        if path == "/openapi/v2" and openapi.V2_PROTOBUF_REQUEST in accept:
            return openapi.V2_PROTOBUF_RESPONSE, openapi.V2_PROTOBUF
        return ("application/json", json.dumps(result).encode()) if (result := self.plain(path)) else None

    def plain(self, path: str) -> dict[str, Any] | None:
        if path == "/openapi/v3":
            return openapi.index(self.resources)
        if path.startswith("/openapi/v3/"):
            group, _, version = path.removeprefix("/openapi/v3/").partition("/")[2].rpartition("/")
            return openapi.document(self.resources, group, version)
        return self.objects.get(path)


@pytest.fixture
def plane() -> Iterator[Plane]:
    created = Plane([*builtin_resources(), widgets()])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            result = created.get(self.path.partition("?")[0], self.headers["Accept"] or "")
            if result is None:
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
                return self.answer(404, "application/json", json.dumps(status).encode())
            return self.answer(200, *result)

        def do_POST(self) -> None:
            obj = self.body()
            created.objects[f"{self.path.partition('?')[0]}/{obj['metadata']['name']}"] = obj
            self.answer(201, "application/json", json.dumps(obj).encode())

        def do_PATCH(self) -> None:
            created.patches.append((self.headers["Content-Type"], self.body()))
            self.answer(200, "application/json", json.dumps(created.objects[self.path.partition("?")[0]]).encode())

        def body(self) -> Any:
            return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

        def answer(self, code: int, content_type: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        created.url = f"http://127.0.0.1:{server.server_port}"
        yield created
        server.shutdown()


@pytest.mark.clients
def test_every_kubectl_explains(kubectl: Kubectl, plane: Plane, tmp_path: Path) -> None:
    run = kubectl.using(tmp_path / "none", tmp_path)
    message = run("--server", plane.url, "explain", "pod.spec.containers.resources")
    assert "limits" in message
    assert "The maximum resources of the container." in " ".join(message.split())
    message = run("--server", plane.url, "explain", "jobs.spec", "--recursive")
    assert "backoffLimit" in message
    message = run("--server", plane.url, "explain", "widgets.spec.replicas")
    assert "How many." in message


def deployment(image: str) -> dict[str, Any]:
    containers = [{"name": "a", "image": image}, {"name": "b", "image": "b"}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


@pytest.mark.clients
def test_every_kubectl_creates_and_merges_lists_by_key(kubectl: Kubectl, plane: Plane, tmp_path: Path) -> None:
    run = kubectl.using(tmp_path / "none", tmp_path)
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"replicas": 1}}
    assert "created" in run("--server", plane.url, "create", "-f", "-", stdin=json.dumps(widget))
    for image in ("old", "new"):
        run("--server", plane.url, "apply", "-f", "-", stdin=json.dumps(deployment(image)))
    ((content_type, patch),) = plane.patches
    assert content_type == "application/strategic-merge-patch+json"
    assert patch["spec"]["template"]["spec"] == {
        "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
        "containers": [{"image": "new", "name": "a"}],
    }
    widget["spec"] = {"replicas": 2}
    plane.objects["/apis/example.com/v1/namespaces/default/widgets/w"]["metadata"]["annotations"] = {}
    run("--server", plane.url, "apply", "-f", "-", stdin=json.dumps(widget))
    assert plane.patches[-1][0] == "application/merge-patch+json"
