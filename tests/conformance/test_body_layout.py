"""How answers look to people and programs: newlines, indentation, YAML, and paths that nobody serves."""

from __future__ import annotations

import json

import pytest
import yaml
from tests.conformance.objects import Definitions, crd
from tests.support.http import Client

OBJECT = "/api/v1/namespaces/default"
COMPACT: tuple[tuple[str, dict[str, str]], ...] = (
    (OBJECT, {}),
    (OBJECT, {"User-Agent": "kubectl/v1.34.4"}),
    (f"{OBJECT}?pretty=false", {"User-Agent": "curl/8.0"}),
    (f"{OBJECT}?pretty=0", {"User-Agent": "Mozilla/5.0 (X11)"}),
    (f"{OBJECT}?pretty=yes", {}),
    (f"{OBJECT}?pretty=", {}),
    ("/api/v1/namespaces", {}),
    ("/api/v1/namespaces/nobody", {}),
    ("/api", {}),
    ("/apis", {}),
    ("/apis/apps", {}),
    ("/api/v1", {}),
)
INDENTED: tuple[tuple[str, dict[str, str]], ...] = (
    (f"{OBJECT}?pretty=true", {}),
    (f"{OBJECT}?pretty=T", {}),
    (f"{OBJECT}?x=1&pretty=1", {}),
    (f"{OBJECT}?pretty=1", {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}),
    (OBJECT, {"Accept": "application/json;pretty=1"}),
    (OBJECT, {"Accept": "application/json;pretty=0", "User-Agent": "curl/8.0"}),
    (OBJECT, {"User-Agent": "curl/8.0"}),
    (OBJECT, {"User-Agent": "Wget/1.21"}),
    (OBJECT, {"User-Agent": "Mozilla/5.0 (X11)"}),
    ("/api/v1/namespaces?pretty=1", {}),
    ("/api/v1/namespaces/nobody?pretty=1", {}),
    ("/apis?pretty=1", {}),
    ("/api/v1?pretty=1", {}),
    ("/version", {}),
    ("/", {}),
)
PAGE_NOT_FOUND = (
    "/nothing",
    "/apis/nobody.example",
    "/apis/nobody.example/v1",
    "/apis/nobody.example/v1/things/x",
    "/readyz/nothing",
    "/openid/nothing",
    "/openapi/v9",
    "/metrics/nothing",
    "//version",
)
STATUS_NOT_FOUND = (
    "/api/v9",
    "/api/v1/nothings",
    "/apis/apps/v9",
    "/apis/apps/v9/deployments",
    "/apis/apps/v1/nothings",
    f"{OBJECT}/nothings/x",
    f"{OBJECT}/pods/x/nothing",
    f"{OBJECT}/pods/x/log/y",
)


@pytest.mark.parametrize(("target", "headers"), COMPACT, ids=str)
def test_json_for_programs_is_one_line(api: Client, target: str, headers: dict[str, str]) -> None:
    answer = api.request("GET", target, headers=headers)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.body.count(b"\n") == 1
    assert answer.body.endswith(b"}\n")


@pytest.mark.parametrize(("target", "headers"), INDENTED, ids=str)
def test_json_for_people_is_indented(api: Client, target: str, headers: dict[str, str]) -> None:
    answer = api.request("GET", target, headers=headers)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.text == json.dumps(answer.json, indent=2, ensure_ascii=False)


def test_writes_answer_in_the_same_layout(api: Client) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    at = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert api.request("POST", at, review).text.endswith("}\n")
    assert api.request("POST", f"{at}?pretty=true", review).text.startswith('{\n  "')


def test_a_watch_has_one_event_a_line(api: Client) -> None:
    query = "watch=1&timeoutSeconds=1&pretty=true&fieldSelector=metadata.name=default"
    answer = api.request("GET", f"/api/v1/namespaces?{query}")
    assert [json.loads(line)["type"] for line in answer.text.splitlines()] == ["ADDED"]


def test_yaml_has_sorted_fields(api: Client) -> None:
    answer = api.request("GET", f"{OBJECT}?pretty=1", headers={"Accept": "application/yaml"})
    document = yaml.safe_load(answer.text)
    assert list(document) == sorted(document)
    assert list(document["metadata"]) == sorted(document["metadata"])


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("target", PAGE_NOT_FOUND)
def test_a_path_outside_all_groups_is_answered_with_text(api: Client, method: str, target: str) -> None:
    answer = api.request(method, target)
    assert (answer.status, answer.text) == (404, "404 page not found\n")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("target", STATUS_NOT_FOUND)
def test_a_path_within_a_group_is_answered_with_a_status(api: Client, target: str) -> None:
    answer = api.request("GET", target)
    assert answer.status == 404
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the server could not find the requested resource",
        "reason": "NotFound",
        "details": {},
        "code": 404,
    }


@pytest.mark.parametrize("target", ["/version", "/api/v1"])
def test_a_method_that_a_known_path_does_not_have(api: Client, target: str) -> None:
    answer = api.request("PUT", target)
    assert (answer.status, answer.reason, answer.json["details"]) == (405, "MethodNotAllowed", {})


def test_paths_within_the_group_of_a_definition_that_are_not_served(api: Client, crds: Definitions) -> None:
    group = crds.create(crd("laidouts"))["spec"]["group"]
    for target in (f"/apis/{group}/v9", f"/apis/{group}/v9/laidouts", f"/apis/{group}/v1/nothings"):
        answer = api.request("GET", target)
        assert (answer.status, answer.text) == (404, "404 page not found\n"), target


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
REVIEW = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api", None),
        ("GET", "/apis", None),
        ("GET", "/apis/apps", None),
        ("GET", "/apis/apps/v1", None),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", REVIEW),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}}),
    ],
)
def test_documents_are_not_served_as_tables(api: Client, method: str, path: str, body: object) -> None:
    refused = api.request(method, path, body, headers={"Accept": TABLE, "Content-Type": "application/json"})
    assert (refused.status, refused.reason) == (406, "NotAcceptable")
    assert refused.body == json.dumps(refused.json, indent=2).encode()
    both = {"Accept": f"{TABLE}, application/json", "Content-Type": "application/json"}
    assert api.request(method, path, body, headers=both).status in (200, 201)


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        (
            "/api/v1/namespaces",
            "PartialObjectMetadata",
            "you requested PartialObjectMetadata, but the requested object is a list (*core.NamespaceList)",
        ),
        (
            "/api/v1/namespaces/default",
            "PartialObjectMetadataList",
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.Namespace)",
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "PartialObjectMetadata",
            "you requested PartialObjectMetadata, but the requested object is a list (*rbac.ClusterRoleList)",
        ),
    ],
)
def test_the_metadata_of_a_list_and_of_an_object_are_different_kinds(
    api: Client, path: str, kind: str, message: str
) -> None:
    refused = api.get(path, headers={"Accept": f"application/json;as={kind};v=v1;g=meta.k8s.io"})
    assert (refused.status, refused.message) == (406, message)
