"""Real requests by users with different rights: our server allows and forbids as kube-apiserver does.

Every refusal is compared letter by letter, every other answer by its status.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from tests.apiserver.access.rbac_objects import binding, path_of, role, rule, urls
from tests.security.path_tricks import NS, PATHS
from tests.support.accounts import wait_for_account
from tests.support.http import APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

from torchyard.api.objects import Object

CORE = f"/api/v1/namespaces/{NS}"
APPS = f"/apis/apps/v1/namespaces/{NS}"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
DRY = "dryRun=All"
POD_SPEC = {"containers": [{"name": "main", "image": "image"}]}


def _object(kind: str, name: str, version: str = "v1", **more: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}


CONFIG_MAP = _object("ConfigMap", "here", data={"a": "b"})
POD = _object("Pod", "here", spec=POD_SPEC)
LABELS = {"app": "here"}
DEPLOYMENT = _object(
    "Deployment",
    "here",
    "apps/v1",
    spec={
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": POD_SPEC},
    },
)
OBJECTS = [
    (f"{CORE}/configmaps", CONFIG_MAP),
    (f"{CORE}/configmaps", _object("ConfigMap", "other", data={"a": "b"})),
    (f"{CORE}/secrets", _object("Secret", "here", stringData={"a": "b"})),
    (f"{CORE}/serviceaccounts", _object("ServiceAccount", "robot")),
    (f"{CORE}/pods", POD),
    (f"{APPS}/deployments", DEPLOYMENT),
]
POLICY = [
    binding("requests-view", "ClusterRole/view", "User=viewer", namespace=NS),
    binding("requests-edit", "ClusterRole/edit", f"ServiceAccount={NS}/robot", namespace=NS),
    binding("requests-admin", "ClusterRole/admin", "Group=admins", namespace=NS),
    role("requests-named", rule("*", "configmaps secrets", names="here"), namespace=NS),
    binding("requests-named", "Role/requests-named", "User=named", namespace=NS),
    role(
        "requests-parts",
        rule("get", "pods/log pods/status"),
        rule("create", "pods/exec pods/eviction pods/binding serviceaccounts/token"),
        rule("update patch", "*/status */scale", "*"),
        rule("get", "pods/portforward pods/attach"),
        rule("patch", "pods/ephemeralcontainers pods/resize"),
        namespace=NS,
    ),
    binding("requests-parts", "Role/requests-parts", "User=parts", namespace=NS),
    role(
        "requests-writer",
        rule("update patch", "configmaps"),
        rule("watch", "pods"),
        rule("create", "bindings"),
        rule("deletecollection", "secrets"),
        namespace=NS,
    ),
    binding("requests-writer", "Role/requests-writer", "User=writer", namespace=NS),
    role("requests-cluster", rule("get list", "nodes namespaces"), urls("get", "/metrics /healthz/* /apis /api/*")),
    binding("requests-cluster", "ClusterRole/requests-cluster", "User=cluster"),
    role("requests-star", rule("*", "pods/*"), rule("*", "*", "apps"), urls("*", "/openapi*")),
    binding("requests-star", "ClusterRole/requests-star", "User=star"),
    binding("requests-dangling", "ClusterRole/requests-no-such-role", "User=dangling", namespace=NS),
]
USERS: dict[str, dict[str, str]] = {
    "nobody": {"Impersonate-User": "nobody"},
    "viewer": {"Impersonate-User": "viewer"},
    "robot": {"Impersonate-User": f"system:serviceaccount:{NS}:robot"},
    "other robot": {"Impersonate-User": "system:serviceaccount:default:robot"},
    "admins": {"Impersonate-User": "somebody", "Impersonate-Group": "admins"},
    "named": {"Impersonate-User": "named"},
    "parts": {"Impersonate-User": "parts"},
    "writer": {"Impersonate-User": "writer"},
    "cluster": {"Impersonate-User": "cluster"},
    "star": {"Impersonate-User": "star"},
    "dangling": {"Impersonate-User": "dangling"},
    "quoted": {"Impersonate-User": 'a "b" <c>&d\\'},
    "anonymous": {"Impersonate-User": "system:anonymous"},
    "masters": {"Impersonate-User": "root", "Impersonate-Group": "system:masters"},
}

Sent = tuple[str, str, Any, str]  # method, path, body, content type


def _requests() -> Iterator[Sent]:
    for kind, name in (("configmaps", "here"), ("configmaps", "other"), ("secrets", "here"), ("pods", "here")):
        yield "GET", f"{CORE}/{kind}/{name}", None, JSON
        yield "DELETE", f"{CORE}/{kind}/{name}?{DRY}", None, JSON
    for path in (f"{CORE}/configmaps", f"{CORE}/secrets", "/api/v1/configmaps", f"{CORE}/pods", "/api/v1/pods"):
        yield "GET", path, None, JSON
        yield "GET", f"{path}?fieldSelector=metadata.name%3Dhere", None, JSON
        yield "GET", f"{path}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name=here", None, JSON
    for query in ("watch=1", "watch=yes", "watch=", "watch", "watch=True", "watch=false", "watch=0", "watch=FALSE"):
        yield "GET", f"{CORE}/pods?{query}&timeoutSeconds=1", None, JSON
    yield "GET", f"{CORE}/configmaps?fieldSelector=metadata.name!%3Dhere", None, JSON
    yield "GET", f"{CORE}/configmaps?fieldSelector=metadata.name%3Dhere,metadata.name%3Dother", None, JSON
    yield "GET", f"{CORE}/configmaps?fieldSelector=metadata.name%3Dother,metadata.name%3Dhere", None, JSON
    yield "GET", f"{CORE}/configmaps?fieldSelector=metadata.name", None, JSON
    yield "GET", f"{CORE}/configmaps?fieldSelector=metadata.name%3Da%252Fb", None, JSON
    yield "GET", f"/api/v1/watch/namespaces/{NS}/configmaps/here?timeoutSeconds=1", None, JSON
    yield "GET", f"/api/v1/watch/namespaces/{NS}/pods?timeoutSeconds=1", None, JSON
    yield "POST", f"/api/v1/watch/namespaces/{NS}/configmaps?{DRY}", CONFIG_MAP, JSON
    yield "GET", f"/api/v1/proxy/namespaces/{NS}/pods/here", None, JSON
    yield "DELETE", f"{CORE}/secrets?{DRY}", None, JSON
    yield "DELETE", f"{CORE}/configmaps?{DRY}&fieldSelector=metadata.name%3Dhere", None, JSON
    yield "DELETE", f"{CORE}/secrets?{DRY}&fieldSelector=metadata.name%3Dhere", None, JSON
    yield from _writes()
    yield from _subresources()
    yield from _other_names()
    yield from _elsewhere()


def _writes() -> Iterator[Sent]:
    new = _object("ConfigMap", "new", data={})
    yield "POST", f"{CORE}/configmaps?{DRY}", new, JSON
    yield "POST", f"{CORE}/configmaps?{DRY}", _object("ConfigMap", "here"), JSON
    yield "POST", f"{CORE}/configmaps?{DRY}", {**new, "metadata": {"generateName": "new-"}}, JSON
    yield "POST", f"{CORE}/configmaps?{DRY}", {**new, "metadata": {"name": "new", "namespace": "default"}}, JSON
    yield "POST", f"{CORE}/configmaps/here?{DRY}", new, JSON
    yield "POST", f"{CORE}/secrets?{DRY}", _object("Secret", "here"), JSON
    for name in ("here", "new"):
        obj = _object("ConfigMap", name, data={"c": "d"})
        yield "PUT", f"{CORE}/configmaps/{name}?{DRY}", obj, JSON
        for kind in (MERGE, STRATEGIC):
            yield "PATCH", f"{CORE}/configmaps/{name}?{DRY}", {"data": {"c": "d"}}, kind
        yield "PATCH", f"{CORE}/configmaps/{name}?{DRY}", [{"op": "add", "path": "/data/c", "value": "d"}], JSON_PATCH
        yield "PATCH", f"{CORE}/configmaps/{name}?{DRY}&fieldManager=x&force=true", obj, APPLY
        yield "PUT", f"/apis/coordination.k8s.io/v1/namespaces/{NS}/leases/{name}?{DRY}", {}, JSON
    yield "PUT", f"{CORE}/configmaps/here?{DRY}", _object("ConfigMap", "other"), JSON
    yield "PUT", f"{CORE}/configmaps?{DRY}", _object("ConfigMap", "here"), JSON
    yield "PATCH", f"{CORE}/configmaps?{DRY}", {}, MERGE
    yield "POST", f"{APPS}/deployments?{DRY}", {**DEPLOYMENT, "metadata": {"name": "new"}}, JSON
    yield "DELETE", f"{APPS}/deployments/here?{DRY}", None, JSON
    yield "OPTIONS", f"{CORE}/configmaps/here", None, JSON
    yield "HEAD", f"{CORE}/configmaps/here", None, JSON


def _subresources() -> Iterator[Sent]:
    pod = f"{CORE}/pods/here"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "here"}}
    target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "here"}, "target": {"name": "node"}}
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"]}}
    for method in ("GET", "PUT", "DELETE", "POST"):
        yield method, f"{pod}/status?{DRY}", POD if method in ("PUT", "POST") else None, JSON
    for kind in (MERGE, STRATEGIC):
        yield "PATCH", f"{pod}/status?{DRY}", {"status": {"message": "x"}}, kind
    yield "GET", f"{pod}/log", None, JSON
    yield "POST", f"{pod}/log", None, JSON
    for method in ("GET", "POST"):
        for part in ("exec?command=ls", "attach", "portforward?ports=80", "proxy/", "proxy"):
            yield method, f"{pod}/{part}", None, JSON
    yield "POST", f"{pod}/eviction?{DRY}", {**eviction, "deleteOptions": {"dryRun": ["All"]}}, JSON
    yield "POST", f"{pod}/eviction?{DRY}", {**eviction, "metadata": {"name": "other"}}, JSON
    yield "GET", f"{pod}/eviction", None, JSON
    yield "POST", f"{pod}/binding?{DRY}", target, JSON
    yield "POST", f"{CORE}/bindings?{DRY}", target, JSON
    yield "POST", f"{CORE}/serviceaccounts/robot/token", token, JSON
    yield "POST", f"{CORE}/serviceaccounts/robot/token", {**token, "metadata": {"name": "other"}}, JSON
    yield "POST", f"{CORE}/serviceaccounts/none/token", token, JSON
    for part in ("ephemeralcontainers", "resize"):
        yield "GET", f"{pod}/{part}", None, JSON
        yield "PATCH", f"{pod}/{part}?{DRY}", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC
    for method in ("GET", "PUT"):
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "here"}, "spec": {"replicas": 2}}
        yield method, f"{APPS}/deployments/here/scale?{DRY}", scale if method == "PUT" else None, JSON
    yield "PATCH", f"{APPS}/deployments/here/scale?{DRY}", {"spec": {"replicas": 3}}, MERGE
    yield "PATCH", f"{APPS}/deployments/here/status?{DRY}", {"status": {"replicas": 3}}, MERGE
    yield "GET", f"{pod}/nosuch", None, JSON
    yield "GET", f"{pod}/log/more", None, JSON


def _other_names() -> Iterator[Sent]:
    """Bodies that name another object than the URL, and subresources of objects that do not exist."""
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}}
    bodies: list[tuple[str, str, Object]] = [
        ("POST", f"{CORE}/pods/here/binding", {"apiVersion": "v1", "kind": "Binding", "target": {"name": "n"}}),
        ("POST", f"{CORE}/pods/here/eviction", {"apiVersion": "policy/v1", "kind": "Eviction"}),
        ("POST", f"{CORE}/serviceaccounts/robot/token", {"kind": "TokenRequest", "spec": {"audiences": ["a"]}}),
        ("PUT", f"{APPS}/deployments/here/scale", scale),
        ("PUT", f"{CORE}/pods/here/status", {"apiVersion": "v1", "kind": "Pod", "spec": POD_SPEC}),
        ("PUT", f"{CORE}/pods/here/resize", {"apiVersion": "v1", "kind": "Pod", "spec": POD_SPEC}),
        ("PUT", f"{CORE}/pods/here/ephemeralcontainers", {"apiVersion": "v1", "kind": "Pod", "spec": POD_SPEC}),
        ("PUT", f"{CORE}/configmaps/here", {"apiVersion": "v1", "kind": "ConfigMap"}),
        ("PUT", f"/api/v1/namespaces/{NS}/finalize", {"apiVersion": "v1", "kind": "Namespace"}),
    ]
    metadata: list[Object] = [
        *({}, {"name": "other"}, {"name": "here", "namespace": "default"}, {"namespace": NS}, {"generateName": "x"}),
        {"name": "here", "uid": "5"},
    ]
    for method, path, body in bodies:
        for extra in metadata:
            yield method, f"{path}?{DRY}", {**body, "metadata": extra}, JSON
    apply = f"{DRY}&fieldManager=x&force=true"
    for name in ("missing", "here"):
        yield "PATCH", f"{CORE}/pods/{name}/status?{apply}", {**_object("Pod", name), "status": {"message": "x"}}, APPLY
        yield "PATCH", f"{APPS}/deployments/{name}/scale?{apply}", {**scale, "metadata": {"name": name}}, APPLY
    yield "PUT", f"{CORE}/pods/missing/status?{DRY}", _object("Pod", "missing", spec=POD_SPEC), JSON
    yield "PUT", f"{APPS}/deployments/missing/scale?{DRY}", {**scale, "metadata": {"name": "missing"}}, JSON
    yield "PATCH", f"{CORE}/pods/missing/status?{DRY}", {"status": {}}, MERGE
    yield "PATCH", f"{APPS}/deployments/missing/scale?{DRY}", {"spec": {"replicas": 1}}, MERGE


def _elsewhere() -> Iterator[Sent]:
    for path in ("nodes", "nodes/n", "nodes/n/proxy/metrics", "namespaces", f"namespaces/{NS}", "nosuch"):
        yield "GET", f"/api/v1/{path}", None, JSON
    yield "PUT", f"/api/v1/namespaces/{NS}/finalize?{DRY}", _object("Namespace", NS), JSON
    yield "DELETE", f"/api/v1/namespaces/{NS}?{DRY}", None, JSON
    yield "DELETE", f"/api/v1/nodes?{DRY}", None, JSON
    yield "GET", f"/apis/nosuch.example.com/v1/namespaces/{NS}/widgets", None, JSON
    yield "GET", f"/apis/apps/v1/namespaces/{NS}", None, JSON
    yield "PUT", f"/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval?{DRY}", {}, JSON
    paths = ("/", "/metrics", "/healthz", "/healthz/ping", "/livez", "/readyz", "/version", "/version/", "/openapi/v3")
    more = ("/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/openid/v1/jwks", "/logs")
    for path in (*paths, *more, "/.well-known/openid-configuration", "/debug/pprof", "/%6detrics", "/nosuch"):
        yield "GET", path, None, JSON
    for path in ("/metrics", "/healthz", "/version", "/openapi/v3"):
        yield "POST", path, None, JSON
        yield "HEAD", path, None, JSON


REQUESTS = list(_requests())


@pytest.fixture(scope="module")
def servers(yard: Server, kube: Server) -> Iterator[tuple[Server, Server]]:
    for server in (yard, kube):
        assert server.admin.post("/api/v1/namespaces", _object("Namespace", NS)).status in (201, 409)
        wait_for_account(server.admin, NS)
        for path, obj in OBJECTS:
            answer = server.admin.post(path, obj)
            assert answer.status in (201, 409), answer
        for obj in POLICY:
            answer = server.admin.post(path_of(obj), obj)
            assert answer.status in (201, 409), answer
        eventually(partial(_is_policy_in_force, server), "the policy")
    yield yard, kube
    for server in (
        yard,
        kube,
    ):  # the namespace stays: a worker may begin with this module again, and it would still end
        for obj in POLICY:
            server.admin.delete(f"{path_of(obj)}/{obj['metadata']['name']}")


def _is_policy_in_force(server: Server) -> bool:
    """The real server's authorizer follows a moment later; the last binding of each kind shows that it has."""
    dangling = server.admin.get(f"{CORE}/pods", headers=USERS["dangling"])
    star = server.admin.get("/openapi/v3", headers=USERS["star"])
    return "no-such-role" in dangling.message and star.status == 200


def send(server: Server, user: str, sent: Sent) -> tuple[int, str]:
    """The status of the answer and, of a refusal, the message. The body of anything else may never end."""
    method, path, body, kind = sent
    connection = server.admin.connect()
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        content = b"" if body is None else json.dumps(body).encode()
        headers = {**USERS[user], "Authorization": f"Bearer {server.token}", "Content-Length": str(len(content))}
        for name, value in headers.items() | ({("Content-Type", kind)} if content else set()):
            connection.putheader(name, value)
        connection.endheaders(content)
        response = connection.getresponse()
        is_told = response.status == 403 and method != "HEAD"
        return response.status, str(json.loads(response.read())["message"]) if is_told else ""
    finally:
        connection.close()


def _is_served_differently(sent: Sent, ours: int, theirs: int) -> bool:
    """Answers to allowed requests that differ for a reason that has nothing to do with rights."""
    path = sent[1].partition("?")[0]
    if path.endswith("/proxy") or "/proxy/" in path:
        return ours == 501 and theirs != 403
    if path in ("/logs", "/debug/pprof"):
        return ours == 404 and theirs != 403
    if sent[0] != "GET" and not path.startswith("/api"):
        return 403 not in (ours, theirs)  # some of upstream's handlers accept every method, others only GET
    return False


@pytest.mark.cluster
@pytest.mark.parametrize("user", USERS)
def test_requests_are_allowed_and_forbidden_as_on_a_real_server(servers: tuple[Server, Server], user: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        ours, theirs = (list(threads.map(partial(send, server, user), REQUESTS)) for server in servers)
    differences = [
        (sent, our_answer, their_answer)
        for sent, our_answer, their_answer in zip(REQUESTS, ours, theirs, strict=True)
        if our_answer != their_answer and not _is_served_differently(sent, our_answer[0], their_answer[0])
    ]
    assert differences == []


@pytest.mark.cluster
@pytest.mark.parametrize("user", ["nobody", "named", "parts", "cluster", "admins", "masters"])
def test_odd_paths_mean_the_same_as_on_a_real_server(servers: tuple[Server, Server], user: str) -> None:
    differences = []
    for path in PATHS:
        ours, theirs = (_verdict(*send(server, user, ("GET", path, None, ""))) for server in servers)
        if ours != theirs:
            differences.append((path, ours, theirs))
    assert differences == []


def _verdict(status: int, message: str) -> tuple[str, str]:
    """Whether the path was served, is forbidden, or is an error of the caller's; which one does not matter here."""
    if status == 403:
        return "forbidden", message
    assert status < 500
    return ("served" if status < 400 else "error"), ""
