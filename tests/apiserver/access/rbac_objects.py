"""Builders of roles and bindings, and the small policy the tests of access share."""

from __future__ import annotations

from typing import Any

from tests.support.kubernetes import Server
from tests.support.waiting import eventually

from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.rbac import GROUP

ADMIN = User("admin", groups=("system:masters", "system:authenticated"))
BOB = User("bob", groups=("dev", "system:authenticated"))


def role(name: str, *rules: Object, namespace: str = "", **more: Any) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "rules": list(rules), **more}


def rule(verbs: str, resources: str, groups: str = "core", names: str = "") -> Object:
    result: Object = {
        "verbs": verbs.split(),
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
    }
    return {**result, "resourceNames": names.split()} if names else result


def urls(verbs: str, paths: str) -> Object:
    return {"verbs": verbs.split(), "nonResourceURLs": paths.split()}


def binding(name: str, ref: str, *subjects: str, namespace: str = "") -> Object:
    kind, role_name = ref.split("/")
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role_name},
        "subjects": [subject(name_) for name_ in subjects],
    }


def subject(text: str) -> Object:
    kind, _, name = text.partition("=")
    if kind == "ServiceAccount":
        namespace, _, name = name.rpartition("/")
        return {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}
    return {"kind": kind, "apiGroup": GROUP, "name": name}


POLICY = [
    role("rbac-writer", rule("create update get patch", "*", GROUP)),
    binding("rbac-writer", "ClusterRole/rbac-writer", "User=bob"),
    role("pods", rule("get list", "pods"), rule("*", "pods/*"), namespace="default"),
    binding("pods", "Role/pods", "User=bob", "ServiceAccount=default/robot", namespace="default"),
    role("named", rule("get update", "secrets", names="a b"), namespace="default"),
    binding("named", "Role/named", "Group=dev", namespace="default"),
    role("scaler", rule("get patch", "*/scale", "*"), rule("impersonate", "users", names="carol")),
    binding("scaler", "ClusterRole/scaler", "Group=dev"),
    role("paths", urls("get", "/metrics /debug/* *foo")),
    binding("paths", "ClusterRole/paths", "Group=dev"),
    binding("dangling", "ClusterRole/missing", "User=bob", namespace="default"),
]


def path_of(obj: Object) -> str:
    namespace = obj["metadata"].get("namespace")
    scope = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{GROUP}/v1/{scope}{obj['kind'].lower()}s"


def create_policy(server: Server) -> None:
    """Make the real server hold the same policy; it may be there already."""
    for obj in POLICY:
        response = server.admin.post(path_of(obj), obj)
        assert response.status in (201, 409), response
    # Its authoriser reads a cache that follows a moment later: the last binding shows that it has caught up.
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    spec = {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "x", "namespace": "default"}}

    def has_policy() -> bool:
        status = server.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {**review, "spec": spec})
        return "missing" in status.json["status"].get("reason", "")

    eventually(has_policy, "the policy in the real server's cache")
