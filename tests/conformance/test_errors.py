"""Point 60: every failure is a Status."""

from __future__ import annotations

import pytest
from tests.conformance.objects import Space, config_map, path
from tests.support.http import Client
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

ALICE, BOB = "alice-token", "bob-token"


@pytest.mark.point(60)
def test_a_failure_is_a_complete_status(space: Space) -> None:
    missing = space.api.get(space.path("configmaps", "nobody"))
    assert missing.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "nobody" not found',
        "reason": "NotFound",
        "details": {"name": "nobody", "kind": "configmaps"},
        "code": 404,
    }
    assert missing.status == 404
    assert missing.headers["Content-Type"] == "application/json"


@pytest.mark.point(60)
def test_missing_or_wrong_credentials_are_unauthorized(server: Server) -> None:
    for client in (server.admin.as_user("wrong"), server.admin.as_user("a.b.c")):
        refused = client.get("/api/v1/namespaces")
        assert (refused.status, refused.reason, refused.message) == (401, "Unauthorized", "Unauthorized")
    nobody = server.admin.as_user("").get("/api/v1/namespaces")
    assert nobody.status in (401, 403)
    if nobody.status == 403:
        assert 'User "system:anonymous" cannot list resource "namespaces"' in nobody.message


@pytest.mark.point(60)
def test_a_forbidden_request_names_the_missing_permission(server: Server, space: Space) -> None:
    alice = server.admin.as_user(ALICE)
    cases = [
        ("GET", space.path("pods"), 'pods is forbidden: User "alice" cannot list resource "pods" in API group "" '),
        (
            "GET",
            space.path("pods", "p"),
            'pods "p" is forbidden: User "alice" cannot get resource "pods" in API group "" ',
        ),
        (
            "DELETE",
            space.path("jobs", "j"),
            'jobs.batch "j" is forbidden: User "alice" cannot delete resource "jobs" in ',
        ),
        (
            "GET",
            space.path("pods", "p", "log"),
            'pods "p" is forbidden: User "alice" cannot get resource "pods/log" in ',
        ),
    ]
    for method, at, message in cases:
        refused = alice.request(method, at)
        assert (refused.status, refused.reason) == (403, "Forbidden")
        assert refused.message.startswith(message), refused.message
        assert refused.message.endswith(f'in the namespace "{space.name}"')
    whole = alice.get("/api/v1/nodes")
    assert whole.message == (
        'nodes is forbidden: User "alice" cannot list resource "nodes" in API group "" at the cluster scope'
    )
    assert whole.json["details"] == {"kind": "nodes"}
    path_refused = alice.get("/metrics")
    assert (path_refused.status, path_refused.message) == (
        403,
        'forbidden: User "alice" cannot get path "/metrics"',
    )


@pytest.mark.point(60)
def test_roles_grant_permissions(server: Server, space: Space) -> None:
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get"]},
    ]
    space.make("roles", {"metadata": {"name": "r"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    subjects = [{"kind": "Group", "name": "developers", "apiGroup": "rbac.authorization.k8s.io"}]
    space.make("rolebindings", {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects})
    for name in ("mine", "other"):
        space.make("secrets", {"metadata": {"name": name}})
    alice, bob = server.admin.as_user(ALICE), server.admin.as_user(BOB)
    eventually(lambda: alice.get(space.path("configmaps")).status == 200, "the role in force")
    assert alice.post(space.path("configmaps"), config_map("a")).status == 201
    assert alice.delete(space.path("configmaps", "a")).status == 403
    assert alice.get(space.path("secrets", "mine")).status == 200
    assert alice.get(space.path("secrets", "other")).status == 403
    assert alice.get(space.path("secrets")).status == 403
    assert bob.get(space.path("configmaps")).status == 403
    assert alice.get("/api/v1/configmaps").status == 403
    grab = {"metadata": {"name": "more"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    assert alice.post(space.path("roles"), grab).status == 403


@pytest.mark.point(60)
def test_every_authenticated_user_may_read_discovery_and_version(server: Server) -> None:
    alice = server.admin.as_user(ALICE)
    for at in ("/api", "/apis", "/version", "/healthz", "/openapi/v3", "/api/v1", "/apis/apps/v1"):
        assert alice.get(at).status == 200, at


@pytest.mark.point(60)
def test_impersonation_acts_as_another_user_and_needs_permission(server: Server, space: Space) -> None:
    as_alice = {"Impersonate-User": "alice"}
    refused = server.admin.get(space.path("pods"), headers=as_alice)
    assert (refused.status, 'User "alice" cannot list resource "pods"' in refused.message) == (403, True)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    headers = as_alice | {"Impersonate-Group": "developers", "Content-Type": "application/json"}
    user = server.admin.post(path("selfsubjectreviews"), review, headers=headers).json["status"]["userInfo"]
    assert (user["username"], sorted(user["groups"])) == ("alice", ["developers", "system:authenticated"])
    denied = server.admin.as_user(ALICE).get(space.path("pods"), headers={"Impersonate-User": "bob"})
    assert (denied.status, 'User "alice" cannot impersonate resource "users"' in denied.message) == (403, True)


@pytest.mark.point(60)
def test_bad_parameters_are_bad_requests(api: Client, space: Space) -> None:
    for query in ({"timeoutSeconds": "soon", "watch": "true"}, {"limit": "-1x"}, {"allowWatchBookmarks": "perhaps"}):
        refused = api.get(space.path("configmaps"), query=query)
        assert refused.status in (200, 400), refused
        if refused.status == 400:
            assert refused.json["kind"] == "Status"
