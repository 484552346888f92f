"""Who gets in and how far, asked of a running server: ours and the real one answer alike."""

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
    directory: Path = tmp_path_factory.mktemp("door")
    if request.param == "kube":
        if real.assets() is None:
            pytest.skip(real.MISSING)
        with Kubernetes(directory, users=USERS) as found:
            yield prepared(found)
    else:
        with Yard(directory, users=USERS) as found:
            yield prepared(found)


def prepared(server: Server) -> Server:
    for one in POLICY:
        assert server.admin.post(path_of(one), one).status == 201
    bob = server.admin.as_user("bob-token")
    eventually(lambda: bob.get(f"{CORE}/secrets/mine").status == 404, "the policy")
    return server


@pytest.fixture
def bob(server: Server) -> Client:
    return server.admin.as_user("bob-token")


def whoami(client: Client, **headers: str) -> Any:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = client.post(REVIEWS, review, headers={key.replace("_", "-"): value for key, value in headers.items()})
    assert answer.status == 201, answer
    return answer.json["status"]["userInfo"]


def test_a_token_of_the_file_is_its_user(bob: Client) -> None:
    assert whoami(bob) == {"username": "bob", "uid": "7", "groups": ["dev", "ops", "system:authenticated"]}


def test_the_admin_can_be_somebody_else(server: Server) -> None:
    found = whoami(server.admin, Impersonate_User="x", Impersonate_Group="g", Impersonate_Uid="9")
    assert found == {"username": "x", "uid": "9", "groups": ["g", "system:authenticated"]}


def test_others_are_somebody_else_only_where_they_may(bob: Client) -> None:
    assert whoami(bob, Impersonate_User="carol")["username"] == "carol"
    answer = bob.get("/api", headers={"Impersonate-User": "dave"})
    assert (answer.status, answer.message) == (
        403,
        'users "dave" is forbidden: User "bob" cannot impersonate resource "users" in API group ""'
        " at the cluster scope",
    )


@pytest.mark.parametrize("path", ["/healthz", "/version", "/api/v1/pods"])
def test_a_wrong_token_is_refused_everywhere(server: Server, path: str) -> None:
    answer = server.admin.as_user("wrong").get(path)
    assert (answer.status, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")


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
def test_who_shows_nothing_sees_little(server: Server, path: str, status: int, message: str) -> None:
    answer = server.admin.as_user("").get(path)
    assert answer.status == status
    if message:
        assert answer.message == message


@pytest.mark.parametrize(
    ("query", "status"),
    [({"fieldSelector": "metadata.name=mine"}, 200), ({"fieldSelector": "metadata.name=other"}, 403), ({}, 403)],
)
def test_a_list_of_one_name_is_covered_by_a_rule_for_that_name(bob: Client, query: dict[str, str], status: int) -> None:
    assert bob.get(f"{CORE}/secrets", query=query).status == status
    watching = {**query, "timeoutSeconds": "1", "watch": "true"}
    assert bob.get(f"{CORE}/secrets", query=watching).status == status


def test_a_service_accounts_token_dies_with_the_account(server: Server) -> None:
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


def test_a_strangers_certificate_is_refused(server: Server, tmp_path: Path) -> None:
    stranger = ensure(tmp_path / "pki").directory
    shown = (str(stranger / "admin.crt"), str(stranger / "admin.key"))
    assert server.admin.as_user("", shown).get("/api/v1/pods").status == 401


def test_nobody_gives_away_what_they_do_not_hold(server: Server, bob: Client) -> None:
    writer = role("writer", rule("create", "clusterroles", "rbac.authorization.k8s.io"))
    for one in (writer, binding("writer", "ClusterRole/writer", "User=bob")):
        assert server.admin.post(path_of(one), one).status == 201
    wanted = role("more", rule("delete", "nodes"))
    said = (
        'clusterroles.rbac.authorization.k8s.io "more" is forbidden: user "bob" (groups=["dev" "ops"'
        ' "system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["nodes"], Verbs:["delete"]}'
    )
    eventually(lambda: bob.post(path_of(wanted), wanted).message == said, "the refusal")
