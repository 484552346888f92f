"""Privilege escalation checks, compared with a real server."""

from __future__ import annotations

import pytest
from tests.apiserver.access.memory_lister import MemoryLister
from tests.apiserver.access.rbac_objects import BOB, POLICY, binding, create_policy, path_of, role, rule, urls
from tests.support.kubernetes import Server

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.access.escalation import check_binding, check_role
from torchyard.apiserver.access.rbac import GROUP, Authorizer

GRANTS: list[tuple[str, Object]] = [
    ("roles", role("ok", rule("get", "pods"), namespace="default")),
    (
        "roles",
        role(
            "more",
            rule("get delete", "pods jobs", "core batch"),
            rule("get update", "secrets", names="a c"),
            namespace="default",
        ),
    ),
    ("roles", role("sub", rule("patch get", "deployments/scale pods/log", "apps core"), namespace="default")),
    ("clusterroles", role("urls", urls("get post", "/debug/x /foo*"), rule("*", "*", "*"))),
    ("clusterroles", role("own", urls("get", "/debug/a*"), rule("create", "roles", GROUP))),
    ("clusterroles", role("sum", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})),
    ("rolebindings", binding("to-admin", "ClusterRole/cluster-admin", "User=x", namespace="default")),
    ("rolebindings", binding("to-missing", "ClusterRole/nope", "User=x", namespace="default")),
    ("rolebindings", binding("to-held", "Role/pods", "User=x", namespace="default")),
    ("clusterrolebindings", binding("to-proxier", "ClusterRole/system:node-proxier", "User=x")),
]


@pytest.mark.cluster
def test_privilege_escalation_fails_with_the_real_servers_message(
    kube_bare: Server, authorizer: Authorizer, memory: MemoryLister
) -> None:
    create_policy(kube_bare)
    # Its words about dangling bindings depend on its caches; without them they are always the same.
    dangling = POLICY[-1]
    kube_bare.admin.delete(f"{path_of(dangling)}/{dangling['metadata']['name']}")
    memory.remove(dangling)
    headers = {"Impersonate-User": "bob", "Impersonate-Group": "dev"}
    for resource, grant in GRANTS:
        response = kube_bare.admin.post(path_of(grant), grant, headers=headers, query={"dryRun": "All"})
        real = {} if response.status == 201 else response.json
        assert denial(resource, grant, authorizer, memory) == real, grant["metadata"]["name"]


def denial(resource: str, grant: Object, authorizer: Authorizer, memory: MemoryLister) -> Object:
    try:
        if resource.endswith("bindings"):
            check_binding(BOB, resource, grant, authorizer, memory)
        else:
            check_role(BOB, resource, grant, authorizer)
    except StatusError as error:
        return error.body()
    return {}


@pytest.mark.parametrize("verb", ["escalate", "bind"])
def test_escalate_and_bind_verbs_allow_escalation(authorizer: Authorizer, memory: MemoryLister, verb: str) -> None:
    resource, grant = (
        ("clusterroles", role("all", rule("*", "*", "*")))
        if verb == "escalate"
        else ("clusterrolebindings", binding("all", "ClusterRole/cluster-admin", "User=x"))
    )
    assert denial(resource, grant, authorizer, memory)
    memory.put(role("lift", rule(verb, "clusterroles", GROUP)), binding("lift", "ClusterRole/lift", "User=bob"))
    assert not denial(resource, grant, authorizer, memory)
