"""PUT and server-side apply of an object that does not exist need the right to create it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apiserver.access.rbac_objects import binding, path_of, role, rule
from tests.support import kubernetes as real
from tests.support.http import Answer, Client
from tests.support.kubernetes import Kubernetes, Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.api.objects import Object

USERS = "updater-token,updater,1\nnamed-token,named,2\n"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LEASE_GROUP = "coordination.k8s.io"
POLICY = [
    role("updater", rule("get update patch", "configmaps"), rule("get update patch", "leases", LEASE_GROUP)),
    binding("updater", "ClusterRole/updater", "User=updater"),
    role("named", rule("get patch", "configmaps"), rule("create", "configmaps", names="mine")),
    binding("named", "ClusterRole/named", "User=named"),
]


@pytest.fixture(scope="module", params=["yard", "kube"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("create-on-update")
    if request.param == "kube" and real.assets() is None:
        pytest.skip(real.MISSING)
    with (Kubernetes if request.param == "kube" else Yard)(directory, users=USERS) as running:
        for obj in POLICY:
            assert running.admin.post(path_of(obj), obj).status == 201
        updater = running.admin.as_user("updater-token")
        eventually(lambda: updater.get(f"{LEASES}/missing").status == 404, "the policy")
        yield running


def config_map(name: str, key: str = "a") -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: "b"}}


def apply(client: Client, obj: Object, **query: str) -> Answer:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    path = f"{CONFIG_MAPS}/{obj['metadata']['name']}"
    return client.request("PATCH", path, obj, query={"fieldManager": "test", **query}, headers=headers)


@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}], ids=["stored", "dry run"])
def test_apply_of_a_new_object_needs_create(server: Server, query: dict[str, str]) -> None:
    answer = apply(server.admin.as_user("updater-token"), config_map("new"), **query)
    assert (answer.status, answer.message) == (
        403,
        'configmaps "new" is forbidden: User "updater" cannot create resource "configmaps" in API group ""'
        ' in the namespace "default"',
    )
    assert server.admin.get(f"{CONFIG_MAPS}/new").status == 404


def test_put_of_a_new_object_needs_create(server: Server) -> None:
    lease = {"apiVersion": f"{LEASE_GROUP}/v1", "kind": "Lease", "metadata": {"name": "new", "namespace": "default"}}
    answer = server.admin.as_user("updater-token").put(f"{LEASES}/new", lease)
    assert (answer.status, answer.message) == (
        403,
        'leases.coordination.k8s.io "new" is forbidden: User "updater" cannot create resource "leases" in API group'
        ' "coordination.k8s.io" in the namespace "default"',
    )
    assert server.admin.get(f"{LEASES}/new").status == 404
    assert server.admin.put(f"{LEASES}/new", lease).status == 201


def test_validation_errors_come_before_the_missing_right(server: Server) -> None:
    assert apply(server.admin.as_user("updater-token"), config_map("new", key="a b")).status == 422


def test_a_right_to_create_one_name_covers_apply_of_that_name_only(server: Server) -> None:
    named = server.admin.as_user("named-token")
    assert apply(named, config_map("mine")).status == 201
    assert apply(named, config_map("other")).status == 403


def test_existing_objects_need_no_right_to_create(server: Server) -> None:
    assert server.admin.post(CONFIG_MAPS, config_map("old")).status == 201
    assert apply(server.admin.as_user("updater-token"), config_map("old", key="c"), force="true").status == 200
