"""RBAC: what rules allow, the messages of denials, and the bootstrap policy."""

from __future__ import annotations

import pytest
from tests.apiserver.access.memory_lister import MemoryLister
from tests.apiserver.access.rbac_objects import ADMIN, BOB, binding, path_of, role, rule
from tests.support.kubernetes import Server

from torchyard.api.access.aggregation import aggregated_rules
from torchyard.api.errors import StatusError
from torchyard.apiserver.access.authentication import ANONYMOUS, User
from torchyard.apiserver.access.bootstrap_policy import bootstrap_policy
from torchyard.apiserver.access.rbac import GROUP, Authorizer, AuthorizerAttributes


def test_system_masters_are_always_allowed() -> None:
    assert Authorizer(MemoryLister()).authorize(ADMIN, AuthorizerAttributes("delete", "", "nodes")).allowed


@pytest.mark.parametrize(
    ("access", "message"),
    [
        (
            AuthorizerAttributes("list", "", "nodes"),
            'nodes is forbidden: User "al" cannot list resource "nodes" in API group "" at the cluster scope',
        ),
        (
            AuthorizerAttributes("get", "batch", "jobs", "status", "default", "j"),
            'jobs.batch "j" is forbidden: User "al" cannot get resource "jobs/status" in API group "batch"'
            ' in the namespace "default"',
        ),
        (AuthorizerAttributes("get", path="/metrics"), 'forbidden: User "al" cannot get path "/metrics"'),
    ],
)
def test_a_denial_names_user_verb_resource_and_scope(
    authorizer: Authorizer, access: AuthorizerAttributes, message: str
) -> None:
    with pytest.raises(StatusError) as error:
        authorizer.check(User("al"), access)
    assert (error.value.status, error.value.message) == (403, message)


def test_a_denial_names_missing_roles_of_bindings(authorizer: Authorizer) -> None:
    with pytest.raises(StatusError, match=f'RBAC: clusterrole.{GROUP} "missing" not found$'):
        authorizer.check(BOB, AuthorizerAttributes("list", "", "secrets", namespace="default"))


def test_anonymous_users_can_read_only_health_and_version(authorizer: Authorizer) -> None:
    allowed = [
        path
        for path in ("/healthz", "/livez", "/readyz", "/version", "/api", "/metrics", "/openapi/v3", "/healthz/etcd")
        if authorizer.authorize(ANONYMOUS, AuthorizerAttributes("get", path=path)).allowed
    ]
    assert allowed == ["/healthz", "/livez", "/readyz", "/version"]


def test_a_policy_change_takes_effect_at_once(authorizer: Authorizer, memory: MemoryLister) -> None:
    access = AuthorizerAttributes("list", "", "nodes")
    assert not authorizer.authorize(BOB, access).allowed
    added = [role("nodes", rule("list", "nodes")), binding("nodes", "ClusterRole/nodes", "User=bob")]
    memory.put(*added)
    assert authorizer.authorize(BOB, access).allowed
    memory.remove(added[1])
    assert not authorizer.authorize(BOB, access).allowed


def test_the_policy_is_cached_until_it_changes(authorizer: Authorizer, memory: MemoryLister) -> None:
    authorizer.authorize(BOB, AuthorizerAttributes("list", "", "nodes"))
    reads = memory.reads
    for number in range(20):
        authorizer.authorize(User(f"user{number}"), AuthorizerAttributes("list", "", "pods"))
    assert memory.reads == reads


def test_aggregated_roles_have_the_rules_of_selected_roles() -> None:
    chain = [
        role("top", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"to": "top"}}]}),
        role(
            "middle",
            metadata={"labels": {"to": "top"}},
            aggregationRule={"clusterRoleSelectors": [{"matchExpressions": [{"key": "leaf", "operator": "Exists"}]}]},
        ),
        role("leaf", rule("get", "pods"), metadata={"labels": {"leaf": ""}}),
        role("other", rule("get", "nodes")),
    ]
    assert aggregated_rules(chain[0], chain) == [rule("get", "pods")]


def test_roles_that_aggregate_each_other_do_not_hang() -> None:
    loop = [
        role(
            name,
            metadata={"labels": {"to": other}},
            aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"to": name}}]},
        )
        for name, other in (("a", "b"), ("b", "a"))
    ]
    assert aggregated_rules(loop[0], loop) == []


def test_view_edit_and_admin_build_on_each_other(memory: MemoryLister, authorizer: Authorizer) -> None:
    levels = ("view", "edit", "admin")
    memory.put(*(binding(name, f"ClusterRole/{name}", f"User={name}", namespace="team") for name in levels))
    expected = {
        ("list", "", "pods"): levels,
        ("create", "", "pods"): ("edit", "admin"),
        ("get", "", "secrets"): ("edit", "admin"),
        ("create", GROUP, "roles"): ("admin",),
        ("list", "", "nodes"): (),
    }
    for (verb, group, resource), allowed in expected.items():
        access = AuthorizerAttributes(verb, group, resource, namespace="team")
        assert tuple(name for name in levels if authorizer.authorize(User(name), access).allowed) == allowed


@pytest.mark.cluster
def test_the_bootstrap_policy_matches_the_real_server(kube_bare: Server) -> None:
    policy = {(path_of(obj), obj["metadata"]["name"]): obj for obj in bootstrap_policy()}
    assert len(policy) == 131
    for (path, name), obj in policy.items():
        real = kube_bare.admin.get(f"{path}/{name}").json
        for field in ("subjects", "roleRef", "aggregationRule", *(() if "aggregationRule" in obj else ("rules",))):
            assert (obj.get(field) or None) == (real.get(field) or None), name
        for field in ("labels", "annotations"):
            assert obj["metadata"][field] == real["metadata"][field], name
