"""Authentication and authorization of requests to a running server: Torchyard's and the real one respond alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.access.rbac_objects import binding, path_of, role, rule
from tests.support import kubernetes as real
from tests.support.http import Client
from tests.support.kubernetes import Kubernetes, Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.apiserver.access.certificates import ensure

USERS = 'bob-token,bob,7,"dev,ops"\n'
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
CORE = "/api/v1/namespaces/default"
POLICY = [
    role("named", rule("get list watch", "secrets", names="mine"), rule("impersonate", "users", names="carol")),
    binding("named", "ClusterRole/named", "User=bob"),
]


@pytest.fixture(scope="module", params=["yard", "kube"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("server")
    if request.param == "kube":
        if real.assets() is None:
            pytest.skip(real.MISSING)
        with Kubernetes(directory, users=USERS) as running:
            yield prepared(running)
    else:
        with Yard(directory, users=USERS) as running:
            yield prepared(running)


def prepared(server: Server) -> Server:
    for obj in POLICY:
        assert server.admin.post(path_of(obj), obj).status == 201
    bob = server.admin.as_user("bob-token")
    eventually(lambda: bob.get(f"{CORE}/secrets/mine").status == 404, "the policy")
    return server


@pytest.fixture
def bob(server: Server) -> Client:
    return server.admin.as_user("bob-token")


def whoami(client: Client, **headers: str) -> Any:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    response = client.post(REVIEWS, review, headers={key.replace("_", "-"): value for key, value in headers.items()})
    assert response.status == 201, response
    return response.json["status"]["userInfo"]


def test_a_token_of_the_token_file_authenticates_its_user(bob: Client) -> None:
    assert whoami(bob) == {"username": "bob", "uid": "7", "groups": ["dev", "ops", "system:authenticated"]}


def test_the_admin_can_impersonate_users(server: Server) -> None:
    user = whoami(server.admin, Impersonate_User="x", Impersonate_Group="g", Impersonate_Uid="9")
    assert user == {"username": "x", "uid": "9", "groups": ["g", "system:authenticated"]}


def test_other_users_can_impersonate_only_with_permission(bob: Client) -> None:
    assert whoami(bob, Impersonate_User="carol")["username"] == "carol"
    response = bob.get("/api", headers={"Impersonate-User": "dave"})
    assert (response.status, response.message) == (
        403,
        'users "dave" is forbidden: User "bob" cannot impersonate resource "users" in API group ""'
        " at the cluster scope",
    )


@pytest.mark.parametrize("path", ["/healthz", "/version", "/api/v1/pods"])
def test_a_wrong_token_is_unauthorized_on_every_path(server: Server, path: str) -> None:
    response = server.admin.as_user("wrong").get(path)
    assert (response.status, response.reason, response.message) == (401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/healthz", 200, ""),
        ("/livez", 200, ""),
        ("/readyz", 200, ""),
        ("/version", 200, ""),
        ("/api", 403, 'forbidden: User "system:anonymous" cannot get path "/api"'),
        ("/metrics", 403, 'forbidden: User "system:anonymous" cannot get path "/metrics"'),
        (
            "/apis/batch/v1/namespaces/x/jobs/j",
            403,
            'jobs.batch "j" is forbidden: User "system:anonymous" cannot get resource "jobs" in API group "batch"'
            ' in the namespace "x"',
        ),
    ],
)
def test_anonymous_requests_can_read_only_public_paths(server: Server, path: str, status: int, message: str) -> None:
    response = server.admin.as_user("").get(path)
    assert response.status == status
    if message:
        assert response.message == message


@pytest.mark.parametrize(
    ("query", "status"),
    [({"fieldSelector": "metadata.name=mine"}, 200), ({"fieldSelector": "metadata.name=other"}, 403), ({}, 403)],
)
def test_a_list_of_one_name_is_covered_by_a_rule_for_that_name(bob: Client, query: dict[str, str], status: int) -> None:
    assert bob.get(f"{CORE}/secrets", query=query).status == status
    watching = {**query, "timeoutSeconds": "1", "watch": "true"}
    assert bob.get(f"{CORE}/secrets", query=watching).status == status


def test_a_service_account_token_is_invalid_after_the_account_is_deleted(server: Server) -> None:
    accounts = f"{CORE}/serviceaccounts"
    assert server.admin.post(accounts, {"metadata": {"name": "robot"}}).status == 201
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = server.admin.post(f"{accounts}/robot/token", request).json["status"]["token"]
    robot = server.admin.as_user(token)
    assert whoami(robot)["username"] == "system:serviceaccount:default:robot"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = server.admin.post("/apis/authentication.k8s.io/v1/tokenreviews", review).json["status"]
    assert (status["authenticated"], status["audiences"]) == (True, ["https://kubernetes.default.svc"])
    server.admin.delete(f"{accounts}/robot")
    # The real server remembers tokens for ten seconds.
    eventually(lambda: robot.get(f"{CORE}/secrets/mine").status == 401, "the end of the token")


def test_a_certificate_of_another_authority_is_unauthorized(server: Server, tmp_path: Path) -> None:
    other_directory = ensure(tmp_path / "pki").directory
    certificate = (str(other_directory / "admin.crt"), str(other_directory / "admin.key"))
    assert server.admin.as_user("", certificate).get("/api/v1/pods").status == 401


def test_a_user_cannot_grant_permissions_it_does_not_hold(server: Server, bob: Client) -> None:
    writer = role("writer", rule("create", "clusterroles", "rbac.authorization.k8s.io"))
    for obj in (writer, binding("writer", "ClusterRole/writer", "User=bob")):
        assert server.admin.post(path_of(obj), obj).status == 201
    broader_role = role("more", rule("delete", "nodes"))
    message = (
        'clusterroles.rbac.authorization.k8s.io "more" is forbidden: user "bob" (groups=["dev" "ops"'
        ' "system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["nodes"], Verbs:["delete"]}'
    )
    eventually(lambda: bob.post(path_of(broader_role), broader_role).message == message, "the denial")
