"""APIServices: what an extension API server gets, what clients get, and the condition `Available`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.objects import Space
from tests.support.extension_server import GROUP, ROOT, VERSION, ExtensionServer
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}


class Registration:
    """The APIService of a test."""

    def __init__(self, space: Space, extension: ExtensionServer) -> None:
        self.api, self.space, self.extension = space.api, space, extension

    def register(self, service: str, port: int, **spec: Any) -> None:
        reference = {"name": service, "namespace": self.space.name, "port": port}
        body = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": NAME},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 10,
                "service": reference,
                **(spec or {"caBundle": self.extension.authority}),
            },
        }
        answer = self.api.apply(f"{API_SERVICES}/{NAME}", body)
        assert answer.status in (200, 201), answer

    def serve(self, **spec: Any) -> None:
        """Register the extension server behind a Service that stands for this machine."""
        self.register("extension", self.extension.port, **spec)
        self.wait_for("Passed")

    def condition(self) -> dict[str, str]:
        status = self.api.get(f"{API_SERVICES}/{NAME}").json.get("status") or {}
        conditions = status.get("conditions") or [{}]
        assert len(conditions) == 1, conditions
        return dict(conditions[0])

    def wait_for(self, reason: str) -> dict[str, str]:
        eventually(lambda: self.condition().get("reason") == reason, f"the condition {reason}")
        return self.condition()


@pytest.fixture
def registration(space: Space, tmp_path: Path) -> Iterator[Registration]:
    extension = ExtensionServer(tmp_path / "extension", f"extension.{space.name}.svc")
    service = {"metadata": {"name": "extension"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    assert space.api.post(f"/api/v1/namespaces/{space.name}/services", service).status == 201
    yield Registration(space, extension)
    space.api.delete(f"{API_SERVICES}/{NAME}")
    extension.close()


def test_requests_are_passed_on_with_the_user_in_headers(registration: Registration, server: Server) -> None:
    registration.serve()
    path = f"{ROOT}/namespaces/default/things"
    spoofed = {"X-Remote-User": "mallory", "X-Remote-Group": "system:masters", "X-Remote-Extra-Scopes": "all"}
    answer = registration.api.request("POST", f"{path}/a?b=c%20d&a=1", b'{"x":1}', headers=spoofed)
    assert answer.status == 200, answer
    echo = answer.json
    assert (echo["method"], echo["path"], echo["body"]) == ("POST", f"{path}/a?a=1&b=c+d", '{"x":1}')
    headers = echo["headers"]
    users = [value for name, value in headers if name == "x-remote-user"]
    assert users == [_user_name(server)]
    assert sorted(value for name, value in headers if name == "x-remote-group") == [
        "system:authenticated",
        "system:masters",
    ]
    names = {name for name, _ in headers}
    assert "authorization" not in names
    assert "x-remote-extra-scopes" not in names
    host = f"localhost:{registration.extension.port}"
    assert dict(headers) | {"host": host, "x-forwarded-host": host, "x-forwarded-proto": "https"} == dict(headers)
    assert ["x-forwarded-uri", f"{path}/a"] in headers


def test_names_are_passed_on_as_they_were_authorized(registration: Registration) -> None:
    registration.serve()
    path = f"{ROOT}/namespaces/default/things"
    names = {"%23": "%23", "#": "%23", "a%2Fb": "a/b", "a%252Fb": "a%252Fb", "(a)": "%28a%29"}
    echoes = {name: registration.api.request("DELETE", f"{path}/{name}").json for name in names}
    assert {name: echo["path"].removeprefix(f"{path}/") for name, echo in echoes.items()} == names
    for name, echo in echoes.items():
        assert ["x-forwarded-uri", f"{path}/{names[name]}"] in echo["headers"]


def test_a_user_without_permission_does_not_reach_the_server(registration: Registration, server: Server) -> None:
    registration.serve()
    answer = server.admin.as_user("alice-token").get(f"{ROOT}/namespaces/default/things")
    assert (answer.status, answer.message) == (
        403,
        f'things.{GROUP} is forbidden: User "alice" cannot list resource "things" in API group "{GROUP}" in the '
        'namespace "default"',
    )


def test_discovery_lists_the_group_and_its_resources(registration: Registration) -> None:
    registration.serve()
    api = registration.api
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    group = {"name": GROUP, "versions": [version], "preferredVersion": version}
    assert group in api.get("/apis").json["groups"]
    assert api.get(f"/apis/{GROUP}").json == {"kind": "APIGroup", "apiVersion": "v1", **group}
    assert api.get(ROOT).json["resources"][0]["name"] == "things"

    def aggregated() -> Any:
        items = api.get("/apis", headers=AGGREGATED).json["items"]
        return next((item["versions"] for item in items if item["metadata"]["name"] == GROUP), None)

    kind = {"group": "", "version": "", "kind": "Thing"}
    things = {
        "resource": "things",
        "responseKind": kind,
        "scope": "Namespaced",
        "singularResource": "thing",
        "verbs": ["get", "list"],
        "shortNames": ["th"],
        "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}],
    }
    expected = [{"version": VERSION, "resources": [things], "freshness": "Current"}]
    eventually(lambda: aggregated() == expected, "the resources in the aggregated document")


def test_a_service_that_is_missing_or_cannot_be_reached(registration: Registration) -> None:
    space, api = registration.space, registration.api
    services, shown = f"/api/v1/namespaces/{space.name}/services", f'in "{space.name}"'
    registration.register("missing", 443)
    condition = registration.wait_for("ServiceNotFound")
    assert (condition["status"], condition["message"]) == ("False", f"service/missing {shown} is not present")
    for path in (ROOT, f"{ROOT}/namespaces/default/things"):
        answer = api.get(path)
        assert (answer.status, answer.text) == (503, "service unavailable\n")
    ports = [{"name": "https", "port": 443, "targetPort": 8443}]
    assert api.post(services, {"metadata": {"name": "plain"}, "spec": {"ports": ports}}).status == 201
    registration.register("plain", 444)
    condition = registration.wait_for("ServicePortError")
    assert condition["message"] == f"service/plain {shown} is not listening on port 444"
    registration.register("plain", 443)
    condition = registration.wait_for("EndpointsNotFound")
    assert condition["message"] == f"cannot find endpointslices for service/plain {shown}"
    endpoint_slice = {
        "metadata": {"name": "plain-1", "labels": {"kubernetes.io/service-name": "plain"}},
        "addressType": "IPv4",
        "ports": [{"name": "other", "port": 8443}],
        "endpoints": [{"addresses": ["10.1.2.3"]}],
    }
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{space.name}/endpointslices"
    assert api.post(slices, endpoint_slice).status == 201
    condition = registration.wait_for("MissingEndpoints")
    message = f'endpointslices for service/plain {shown} have no addresses with port name "https"'
    assert condition["message"] == message


def test_a_certificate_of_another_authority_is_refused(registration: Registration, tmp_path: Path) -> None:
    registration.serve()
    other = ExtensionServer(tmp_path / "other", "other.test")
    other.close()
    registration.register("extension", registration.extension.port, caBundle=other.authority)
    reason = "tls: failed to verify certificate: x509: certificate signed by unknown authority"

    def is_refused() -> bool:
        answer = registration.api.get(f"{ROOT}/x")
        return answer.status == 503 and answer.text.startswith(f"error trying to reach service: {reason}")

    eventually(is_refused, "the refusal")


def test_a_deleted_registration_serves_nothing(registration: Registration) -> None:
    registration.serve()
    registration.api.delete(f"{API_SERVICES}/{NAME}")
    eventually(lambda: registration.api.get(f"{ROOT}/x").status == 404, "the end of the API")
    eventually(lambda: registration.api.get(f"/apis/{GROUP}").text == "404 page not found\n", "the end of the group")


def test_an_api_service_without_a_service_is_always_available(space: Space) -> None:
    spec = {"group": "local.torchyard.dev", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    name = "v1.local.torchyard.dev"
    assert space.api.post(API_SERVICES, {"metadata": {"name": name}, "spec": spec}).status == 201

    def condition() -> Any:
        obj = space.api.get(f"{API_SERVICES}/{name}").json
        return [(each["reason"], each["message"]) for each in (obj.get("status") or {}).get("conditions") or ()]

    try:
        eventually(lambda: condition() == [("Local", "Local APIServices are always available")], "the condition")
    finally:
        space.api.delete(f"{API_SERVICES}/{name}")


def _user_name(server: Server) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = server.admin.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    return str(answer.json["status"]["userInfo"]["username"])
