"""Access reviews, impersonation, escalation checks and rights behind approvals, compared with a real server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.apiserver.access.rbac_objects import binding, path_of, role, rule, urls
from tests.support.http import APPLY, JSON_PATCH, MERGE, Answer
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

from torchyard.api.objects import Object

NS = "reviews"
RBAC = "rbac.authorization.k8s.io"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
CSR = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SIGNERS = "certificates.k8s.io"
POLICY = [
    role(
        "reviews-writer",
        rule("*", "roles rolebindings clusterroles clusterrolebindings", RBAC),
        rule("get list", "pods"),
        rule("create patch update get", "validatingadmissionpolicies validatingadmissionpolicybindings", "*"),
        rule("get", "configmaps"),
        rule("*", "certificatesigningrequests certificatesigningrequests/*", SIGNERS),
        urls("get", "/healthz/*"),
    ),
    role("reviews-no-magic", rule("create update patch get delete", "roles rolebindings clusterroles", RBAC)),
    role("reviews-escalator", rule("escalate create update patch", "clusterroles", RBAC, names="reviews-target")),
    role(
        "reviews-binder",
        rule("create", "rolebindings", RBAC),
        rule("bind", "clusterroles", RBAC, names="reviews-reader"),
    ),
    role(
        "reviews-reader", rule("get list watch", "pods pods/log services"), rule("get list", "jobs cronjobs", "batch")
    ),
    role("reviews-approver", rule("approve", "signers", SIGNERS, names="example.com/one")),
    role("reviews-domain", rule("approve sign", "signers", SIGNERS, names="example.com/*")),
    role("reviews-csr", rule("*", "certificatesigningrequests certificatesigningrequests/*", SIGNERS)),
    role(
        "reviews-impersonator",
        rule("impersonate", "users", names="alice system:anonymous"),
        rule("impersonate", "groups", names="developers"),
        rule("impersonate", "serviceaccounts", names="robot"),
        rule("impersonate", "userextras/scopes", "authentication.k8s.io", names="view"),
        rule("impersonate", "uids", "authentication.k8s.io", names="1234"),
    ),
    binding("reviews-no-magic", "ClusterRole/reviews-no-magic", "User=plain", "User=held", "User=escalator"),
    binding("reviews-held", "ClusterRole/reviews-writer", "User=held", "User=csr-none"),
    binding("reviews-escalator", "ClusterRole/reviews-escalator", "User=escalator"),
    binding("reviews-binder", "ClusterRole/reviews-binder", "User=binder"),
    binding("reviews-csr", "ClusterRole/reviews-csr", "User=approver", "User=domain"),
    binding("reviews-approver", "ClusterRole/reviews-approver", "User=approver"),
    binding("reviews-domain", "ClusterRole/reviews-domain", "User=domain"),
    binding("reviews-impersonator", "ClusterRole/reviews-impersonator", "User=bob"),
]


@pytest.fixture(scope="module")
def servers(yard: Server, kube: Server) -> Iterator[tuple[Server, Server]]:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}
    target = role("reviews-target", rule("get", "pods"))
    selectors = [{"matchLabels": {"reviews": "x"}}]
    aggregated = role("reviews-sum", aggregationRule={"clusterRoleSelectors": selectors})
    for server in (yard, kube):
        assert server.admin.post("/api/v1/namespaces", namespace).status in (201, 409)
        for obj in (*POLICY, target, aggregated):
            assert server.admin.post(path_of(obj), obj).status in (201, 409)
        eventually(partial(_is_policy_in_force, server), "the policy")
    yield yard, kube
    for server in (
        yard,
        kube,
    ):  # the namespace stays: a worker may begin with this module again, and it would still end
        for obj in (*POLICY, target, aggregated):
            server.admin.delete(f"{path_of(obj)}/{obj['metadata']['name']}")


def _is_policy_in_force(server: Server) -> bool:
    return server.admin.as_user("bob-token").get("/api", headers={"Impersonate-User": "alice"}).status == 200


def _as(user: str) -> dict[str, str]:
    return {"Impersonate-User": user}


def _comparable(answer: Answer) -> tuple[int, Any]:
    if answer.status >= 400:
        return answer.status, answer.message
    body = answer.json
    return answer.status, {key: body.get(key) for key in ("spec", "status")}


def _same(servers: tuple[Server, Server], *arguments: Any, **more: Any) -> tuple[int, Any]:
    """Send a request to both servers, compare the answers and return ours."""
    ours, theirs = (_comparable(server.admin.request(*arguments, **more)) for server in servers)
    assert ours == theirs
    return ours


def _review(kind: str, spec: Object, **metadata: str) -> Object:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


PODS = {"verb": "list", "resource": "pods", "namespace": NS}
ACCESS: list[Object] = [
    {"resourceAttributes": PODS},
    {"resourceAttributes": {}},
    {"nonResourceAttributes": {}},
    {"nonResourceAttributes": {"path": "/healthz/x", "verb": "get"}},
    {"nonResourceAttributes": {"path": "", "verb": ""}},
    {},
    {"resourceAttributes": PODS, "nonResourceAttributes": {"path": "/"}},
    {"resourceAttributes": {**PODS, "fieldSelector": {}}},
    {"resourceAttributes": {**PODS, "fieldSelector": {"rawSelector": "metadata.name=x"}}},
    {"resourceAttributes": {**PODS, "fieldSelector": {"rawSelector": "not a selector"}}},
    {"resourceAttributes": {**PODS, "labelSelector": {"rawSelector": "a=b"}}},
    {"resourceAttributes": {**PODS, "labelSelector": {"rawSelector": "((("}}},
    {
        "resourceAttributes": {
            **PODS,
            "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
        }
    },
    {
        "resourceAttributes": {
            **PODS,
            "fieldSelector": {
                "rawSelector": "a=b",
                "requirements": [{"key": "metadata.name", "operator": "In", "values": ["x"]}],
            },
        }
    },
    {"resourceAttributes": {**PODS, "fieldSelector": {"requirements": [{"key": "", "operator": "In"}]}}},
    {"resourceAttributes": {**PODS, "labelSelector": {"requirements": [{"key": "a", "operator": "Odd"}]}}},
    {
        "resourceAttributes": {
            **PODS,
            "labelSelector": {"requirements": [{"key": "a", "operator": "Exists", "values": ["x"]}]},
        }
    },
    {"resourceAttributes": {**PODS, "labelSelector": {"requirements": [{"key": "a", "operator": "In"}]}}},
]

ACCESS += [
    {"resourceAttributes": {**PODS, selector: {"requirements": [{"key": key, "operator": operator, "values": values}]}}}
    for selector in ("fieldSelector", "labelSelector")
    for key, operator in (("a", "In"), ("a", "NotIn"), ("a", "Exists"), ("bad key!", "DoesNotExist"), ("a", "in"))
    for values in ([], ["x"], ["x", "y"], ["bad value!"])
]


@pytest.mark.cluster
@pytest.mark.parametrize("user", ["held", "nobody"])
@pytest.mark.parametrize("spec", ACCESS, ids=lambda spec: json.dumps(spec)[:60])
def test_access_reviews_answer_as_a_real_server(servers: tuple[Server, Server], spec: Object, user: str) -> None:
    _same(servers, "POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", _review("SelfSubjectAccessReview", spec),
          headers=_as(user))  # fmt: skip
    full = {**spec, "user": user}
    _same(servers, "POST", f"{AUTHORIZATION}/subjectaccessreviews", _review("SubjectAccessReview", full))
    local = f"{AUTHORIZATION}/namespaces/{NS}/localsubjectaccessreviews"
    _same(servers, "POST", local, _review("LocalSubjectAccessReview", full, namespace=NS))


@pytest.mark.cluster
@pytest.mark.parametrize(
    "review",
    [
        _review("SubjectAccessReview", {"resourceAttributes": PODS}),
        _review("SubjectAccessReview", {"resourceAttributes": PODS, "groups": ["system:masters"]}),
        _review("SubjectAccessReview", {"resourceAttributes": PODS, "user": "x", "extra": {"a": ["b"]}, "uid": "5"}),
        _review("SubjectAccessReview", {"resourceAttributes": PODS, "user": "x"}, namespace="elsewhere"),
        _review("SubjectAccessReview", {"resourceAttributes": PODS, "user": 'a "b" <c>'}),
        _review("SubjectAccessReview", {"resourceAttributes": PODS, "user": "held", "groups": [""]}),
    ],
    ids=lambda review: json.dumps(review["spec"])[:60],
)
def test_subject_access_reviews_of_odd_subjects_answer_as_a_real_server(
    servers: tuple[Server, Server], review: Object
) -> None:
    _same(servers, "POST", f"{AUTHORIZATION}/subjectaccessreviews", review)


@pytest.mark.cluster
@pytest.mark.parametrize("user", ["held", "nobody", "plain", "system:anonymous", "root"])
def test_rules_reviews_answer_as_a_real_server(servers: tuple[Server, Server], user: str) -> None:
    review = _review("SelfSubjectRulesReview", {"namespace": NS})
    headers = {**_as(user), **({"Impersonate-Group": "system:masters"} if user == "root" else {})}
    path = f"{AUTHORIZATION}/selfsubjectrulesreviews"
    answers = [server.admin.post(path, review, headers=headers) for server in servers]
    assert answers[0].status == answers[1].status
    if answers[0].status != 201:
        assert answers[0].message == answers[1].message
        return
    ours, theirs = (answer.json for answer in answers)
    assert ours["spec"] == theirs["spec"]
    for part in ("resourceRules", "nonResourceRules"):
        rules = [
            sorted(json.dumps(item, sort_keys=True) for item in answer["status"][part]) for answer in (ours, theirs)
        ]
        assert rules[0] == rules[1]


IMPERSONATIONS: list[list[tuple[str, str]]] = [
    [("User", "alice")],
    [("User", "carol")],
    [("User", "")],
    [("User", "alice"), ("User", "carol")],
    [("User", "alice"), ("Group", "developers")],
    [("User", "alice"), ("Group", "developers"), ("Group", "system:masters")],
    [("User", "alice"), ("Group", "")],
    [("User", "alice"), ("Group", "system:authenticated")],
    [("User", "system:anonymous")],
    [("User", f"system:serviceaccount:{NS}:robot")],
    [("User", f"system:serviceaccount:{NS}:other")],
    [("User", "system:serviceaccount::robot")],
    [("User", "system:serviceaccount:robot")],
    [("User", "system:serviceaccount:UPPER:robot")],
    [("User", "system:serviceaccount:a:robot:x")],
    [("User", "system:serviceaccount:a.b:robot")],
    [("User", "alice"), ("Uid", "1234")],
    [("User", "alice"), ("Uid", "5")],
    [("User", "alice"), ("Extra-Scopes", "view")],
    [("User", "alice"), ("Extra-scopes", "view"), ("Extra-SCOPES", "edit")],
    [("User", "alice"), ("Extra-Other", "view")],
    [("User", "alice"), ("Extra-%73copes", "view")],
    [("User", "alice"), ("Extra-%zz", "view")],
    [("User", "alice"), ("Extra-", "view")],
    [("User", "alice"), ("Extra-Scopes", "view"), ("Uid", "5")],
    [("Group", "developers")],
    [("Uid", "1234")],
    [("Extra-Scopes", "view")],
    [("Nonsense", "x")],
]


@pytest.mark.cluster
@pytest.mark.parametrize("headers", IMPERSONATIONS, ids=str)
@pytest.mark.parametrize("caller", ["bob", "admin"])
def test_impersonation_is_allowed_as_on_a_real_server(
    servers: tuple[Server, Server], headers: list[tuple[str, str]], caller: str
) -> None:
    answers: list[tuple[int, Any]] = []
    for server in servers:
        connection = server.admin.connect()
        body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
        connection.putrequest("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
        token = "bob-token" if caller == "bob" else server.token
        for name, value in (("Authorization", f"Bearer {token}"), ("Content-Type", "application/json")):
            connection.putheader(name, value)
        for name, value in headers:
            connection.putheader(f"Impersonate-{name}", value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if response.status == 500:
            # upstream's answer to groups without a user; ours is 400
            answers.append((400, None))
        elif response.status == 400:
            answers.append((400, None))
        else:
            document = json.loads(content)
            user = document.get("message") or document["status"]["userInfo"]
            is_caller = isinstance(user, dict) and user["username"] in ("admin", "yard-admin")
            answers.append((response.status, "the caller" if is_caller else user))
    assert answers[0] == answers[1]


GRANTS: list[tuple[str, str, str, Any]] = [
    ("POST", f"/apis/{RBAC}/v1/clusterroles", "", role("reviews-new", rule("get", "pods"))),
    ("POST", f"/apis/{RBAC}/v1/clusterroles", "", role("reviews-new", rule("get delete", "pods secrets"))),
    ("POST", f"/apis/{RBAC}/v1/clusterroles", "", role("reviews-new", urls("get", "/healthz/a*"), urls("get", "/x"))),
    ("POST", f"/apis/{RBAC}/v1/clusterroles", "", role("reviews-new", rule("get", "pods"), {"verbs": []})),
    (
        "POST",
        f"/apis/{RBAC}/v1/clusterroles",
        "",
        {**role("", rule("*", "*", "*")), "metadata": {"generateName": "x-"}},
    ),
    ("POST", f"/apis/{RBAC}/v1/clusterroles", "", role("reviews-target", rule("*", "*", "*"))),
    ("PUT", f"/apis/{RBAC}/v1/clusterroles/reviews-target", "", role("reviews-target", rule("*", "*", "*"))),
    ("PATCH", f"/apis/{RBAC}/v1/clusterroles/reviews-target", MERGE, {"rules": [rule("delete", "secrets")]}),
    ("PATCH", f"/apis/{RBAC}/v1/clusterroles/reviews-target", MERGE, {"metadata": {"labels": {"a": "b"}}}),
    ("PATCH", f"/apis/{RBAC}/v1/clusterroles/reviews-target", MERGE, {"metadata": {"finalizers": ["a.b/c"]}}),
    (
        "PATCH",
        f"/apis/{RBAC}/v1/clusterroles/reviews-target",
        JSON_PATCH,
        [{"op": "add", "path": "/rules/-", "value": rule("delete", "nodes")}],
    ),
    ("PATCH", f"/apis/{RBAC}/v1/clusterroles/reviews-apply", APPLY, role("reviews-apply", rule("delete", "nodes"))),
    ("PATCH", f"/apis/{RBAC}/v1/clusterroles/reviews-sum", MERGE, {"aggregationRule": None}),
    ("PATCH", f"/apis/{RBAC}/v1/clusterroles/reviews-sum", MERGE, {"metadata": {"labels": {"a": "b"}}}),
    (
        "PATCH",
        f"/apis/{RBAC}/v1/clusterroles/reviews-target",
        MERGE,
        {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}},
    ),
    ("POST", "", "", binding("reviews-new", "ClusterRole/reviews-reader", "User=x", namespace=NS)),
    ("POST", "", "", binding("reviews-new", "ClusterRole/cluster-admin", "User=x", namespace=NS)),
    ("POST", "", "", binding("reviews-new", "ClusterRole/reviews-target", "User=x", namespace=NS)),
    ("POST", "", "", binding("reviews-new", "ClusterRole/reviews-nowhere", "User=x", namespace=NS)),
    ("POST", "", "", binding("reviews-new", "Role/reviews-nowhere", "User=x", namespace=NS)),
    (
        "POST",
        "",
        "",
        binding("reviews-new", "ClusterRole/reviews-reader", namespace=NS) | {"subjects": [{"kind": "Odd"}]},
    ),
    ("DELETE", f"/apis/{RBAC}/v1/clusterroles/reviews-target", "", None),
]


@pytest.mark.cluster
@pytest.mark.parametrize("user", ["plain", "held", "escalator", "binder", "nobody"])
@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: f"{grant[0]} {json.dumps(grant[3])[:50]}")
def test_grants_are_allowed_as_on_a_real_server(
    servers: tuple[Server, Server], grant: tuple[str, str, str, Any], user: str
) -> None:
    method, path, kind, body = grant
    headers = {**_as(user), "Impersonate-Group": "system:authenticated", **({"Content-Type": kind} if kind else {})}
    query = {"dryRun": "All", **({"fieldManager": "x"} if kind == APPLY else {})}
    answers = [
        server.admin.request(method, path or path_of(body), body, headers=headers, query=query) for server in servers
    ]
    ours, theirs = ((answer.status, answer.message if answer.status >= 400 else "") for answer in answers)
    assert ours == theirs


def _signing_request(signer: str, *organizations: str) -> Object:
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, "x"))
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    pem = request.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        serialization.Encoding.PEM
    )
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": signer,
        "usages": ["client auth"],
        "username": "system:admin",
        "groups": ["system:masters"],
        "uid": "forged",
        "extra": {"a": ["b"]},
    }
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "spec": spec}


@pytest.mark.cluster
def test_a_certificate_request_names_its_requester_whatever_it_says(servers: tuple[Server, Server]) -> None:
    results = []
    for server in servers:
        request = {**_signing_request("example.com/one"), "metadata": {"name": "reviews-forged"}}
        answer = server.admin.post(f"{CSR}?dryRun=All", request, headers=_as("approver"))
        spec = answer.json["spec"]
        results.append((answer.status, {key: spec.get(key) for key in ("username", "groups", "uid", "extra")}))
    assert results[0] == results[1]
    assert results[0][1]["username"] == "approver"


@pytest.mark.cluster
@pytest.mark.parametrize("signer", ["example.com/one", "example.com/two", "kubernetes.io/kube-apiserver-client"])
@pytest.mark.parametrize("user", ["approver", "domain", "csr-none"])
def test_approving_and_signing_need_the_signer(servers: tuple[Server, Server], signer: str, user: str) -> None:
    approved = [{"type": "Approved", "status": "True", "reason": "x", "message": "y"}]
    answers: list[list[tuple[int, str]]] = []
    name = f"reviews-{signer.replace('/', '-').replace('.', '-')}-{user}"
    for server in servers:
        request = {**_signing_request(signer), "metadata": {"name": name}}
        assert server.admin.post(CSR, request).status in (201, 409)
        stored = server.admin.get(f"{CSR}/{name}").json
        outcomes = []
        for part, status in (
            ("approval", {"conditions": approved}),
            ("status", {"certificate": "eA=="}),
            ("status", {}),
        ):
            answer = server.admin.put(
                f"{CSR}/{name}/{part}?dryRun=All", {**stored, "status": status}, headers=_as(user)
            )
            outcomes.append((answer.status, answer.message if answer.status == 403 else ""))
        answers.append(outcomes)
        server.admin.delete(f"{CSR}/{name}")
    assert [outcome for outcome in answers[0] if outcome[0] != 422] == [
        outcome for outcome in answers[1] if outcome[0] != 422
    ]


@pytest.mark.cluster
def test_a_client_certificate_for_masters_cannot_be_requested(servers: tuple[Server, Server]) -> None:
    request = _signing_request("kubernetes.io/kube-apiserver-client", "system:masters")
    request["metadata"] = {"name": "reviews-masters"}
    assert _same(servers, "POST", f"{CSR}?dryRun=All", request)[0] == 403


def _policy(kind: str, version: str = "v1") -> Object:
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    spec = {
        "paramKind": {"apiVersion": version, "kind": kind},
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "true"}],
    }
    metadata = {"name": "reviews-policy"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": spec,
    }


@pytest.mark.cluster
@pytest.mark.parametrize("kind", [("ConfigMap", "v1"), ("Secret", "v1"), ("Widget", "example.com/v1"), ("X", "a/b/c")])
def test_a_policy_can_read_only_parameters_that_its_author_can(
    servers: tuple[Server, Server], kind: tuple[str, str]
) -> None:
    answers = [
        server.admin.post(f"{ADMISSION}/validatingadmissionpolicies?dryRun=All", _policy(*kind), headers=_as("held"))
        for server in servers
    ]
    ours, theirs = ((answer.status, answer.message if answer.status >= 400 else "") for answer in answers)
    assert ours == theirs


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_a_policy_binding_can_name_only_parameters_that_its_author_can_read(
    servers: tuple[Server, Server], kind: str
) -> None:
    answers = []
    for server in servers:
        path = f"{ADMISSION}/validatingadmissionpolicies"
        assert server.admin.post(path, _policy(kind)).status == 201
        reference = {"name": "x", "namespace": NS, "parameterNotFoundAction": "Allow"}
        spec = {"policyName": "reviews-policy", "validationActions": ["Warn"], "paramRef": reference}
        bound = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "reviews-binding"},
            "spec": spec,
        }
        answers.append(
            server.admin.post(f"{ADMISSION}/validatingadmissionpolicybindings?dryRun=All", bound, headers=_as("held"))
        )
        assert server.admin.delete(f"{path}/reviews-policy").status == 200
    ours, theirs = ((answer.status, answer.message if answer.status >= 400 else "") for answer in answers)
    assert ours == theirs
