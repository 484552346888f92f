"""Service-account tokens: asked for, used, bound, expired, revoked."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.access.memory_lister import Memory
from tests.support.kubernetes import Server

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import TokenRejected
from torchyard.apiserver.access.certificates import ensure
from torchyard.apiserver.access.service_account_tokens import ISSUER, ServiceAccountTokens

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def account(uid: str = "u1") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "sa1", "namespace": "default", "uid": uid},
    }


def pod(name: str, account: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"serviceAccountName": account, "nodeName": "n1"},
    }


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "uid-n1"}}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory() -> Memory:
    return Memory(account(), pod("p1", "sa1"), pod("p2", "other"), NODE)


@pytest.fixture
def tokens(tmp_path: Path, memory: Memory, clock: Clock) -> ServiceAccountTokens:
    return ServiceAccountTokens(ensure(tmp_path / "pki").service_account_key.read_bytes(), memory, clock=clock)


def issued(tokens: ServiceAccountTokens, **spec: Any) -> str:
    token: str = tokens.request("default", "sa1", {**REVIEW, "spec": spec})["status"]["token"]
    return token


def parts(token: str) -> tuple[Object, Object]:
    header, payload, _ = (json.loads(base64.urlsafe_b64decode(one + "==")) for one in [*token.split(".")[:2], "e30"])
    return header, payload


def test_a_request_is_answered_with_the_token_and_all_defaults(tokens: ServiceAccountTokens) -> None:
    answer = tokens.request("default", "sa1", {**REVIEW, "spec": {}})
    status = answer.pop("status")
    assert answer == {
        **REVIEW,
        "metadata": {
            "name": "sa1",
            "namespace": "default",
            "uid": "u1",
            "creationTimestamp": "2027-01-15T08:00:00Z",
        },
        "spec": {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": None},
    }
    assert status["expirationTimestamp"] == "2027-01-15T09:00:00Z"
    header, claims = parts(status["token"])
    assert header["alg"] == "ES256"
    del claims["jti"]
    assert claims == {
        "aud": [ISSUER],
        "exp": 1_800_003_600,
        "iat": 1_800_000_000,
        "nbf": 1_800_000_000,
        "iss": ISSUER,
        "sub": "system:serviceaccount:default:sa1",
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "sa1", "uid": "u1"}},
    }


def test_a_token_is_its_account(tokens: ServiceAccountTokens) -> None:
    found = tokens.authenticate(issued(tokens))
    assert found is not None
    assert found.audiences == (ISSUER,)
    assert (found.user.name, found.user.uid) == ("system:serviceaccount:default:sa1", "u1")
    assert found.user.groups == ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")


def test_a_pods_token_tells_its_pod_and_node(tokens: ServiceAccountTokens) -> None:
    token = issued(tokens, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p1", "uid": "uid-p1"})
    found = tokens.authenticate(token)
    assert found is not None
    extra = {key.rpartition("/")[2]: values for key, values in found.user.extra.items()}
    del extra["credential-id"]
    assert extra == {
        "pod-name": ("p1",),
        "pod-uid": ("uid-p1",),
        "node-name": ("n1",),
        "node-uid": ("uid-n1",),
    }


@pytest.mark.parametrize("what", ["account gone", "account made anew", "pod gone", "expired", "not yet valid"])
def test_a_token_dies_with_what_it_is_bound_to(
    tokens: ServiceAccountTokens, memory: Memory, clock: Clock, what: str
) -> None:
    token = issued(tokens, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p1"})
    assert tokens.authenticate(token) is not None
    match what:
        case "account gone":
            memory.remove(account())
        case "account made anew":
            memory.put(account("u2"))
        case "pod gone":
            memory.remove(pod("p1", "sa1"))
        case "expired":
            clock.now += 3601
        case _:
            clock.now -= 60
    with pytest.raises(TokenRejected):
        tokens.authenticate(token)


def test_a_pods_token_outlives_its_nodes_object(tokens: ServiceAccountTokens, memory: Memory) -> None:
    token = issued(tokens, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p1"})
    memory.remove(NODE)
    assert tokens.authenticate(token) is not None


def tampered(token: str) -> str:
    header, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    claims["sub"] = "system:serviceaccount:kube-system:root"
    return f"{header}.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.{signature}"


def test_tokens_that_we_did_not_sign_are_not_ours(tokens: ServiceAccountTokens, memory: Memory, tmp_path: Path) -> None:
    theirs = ServiceAccountTokens(ensure(tmp_path / "other").service_account_key.read_bytes(), memory)
    good = issued(tokens)
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=") + "." + good.split(".")[1] + "."
    for text in (tampered(good), issued(theirs), unsigned, "", ".", "..", "a.b.c", "x" * 5000, good[:-3], "é.é.é"):
        assert tokens.authenticate(text) is None, text


def test_tokens_survive_a_restart(tokens: ServiceAccountTokens, memory: Memory, clock: Clock, tmp_path: Path) -> None:
    again = ServiceAccountTokens(ensure(tmp_path / "pki").service_account_key.read_bytes(), memory, clock=clock)
    assert again.authenticate(issued(tokens)) is not None


def test_others_can_check_our_tokens_by_the_published_key(tokens: ServiceAccountTokens) -> None:
    header, _ = parts(issued(tokens))
    (key,) = tokens.key_set()["keys"]
    assert (key["kid"], key["kty"], key["crv"]) == (header["kid"], "EC", "P-256")
    assert tokens.discovery("https://127.0.0.1:6443")["jwks_uri"] == "https://127.0.0.1:6443/openid/v1/jwks"


BAD_REQUESTS: list[tuple[str, Object]] = [
    ("sa1", {"spec": {"expirationSeconds": 10}}),
    ("sa1", {"spec": {"expirationSeconds": 1 << 33}}),
    ("sa1", {"metadata": {"name": "other"}}),
    ("nobody", {}),
    ("sa1", {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "nope"}}}),
    ("sa1", {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p2"}}}),
    ("sa1", {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p1", "uid": "zz"}}}),
    ("sa1", {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": ""}}}),
    ("sa1", {"spec": {"boundObjectRef": {"kind": "Foo", "apiVersion": "v1", "name": "p"}}}),
    ("sa1", {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "apps/v1", "name": "p"}}}),
]


@pytest.mark.cluster
def test_bad_requests_are_refused_in_the_real_servers_words(kube_bare: Server, tokens: ServiceAccountTokens) -> None:
    base = "/api/v1/namespaces/default"
    kube_bare.admin.post(f"{base}/serviceaccounts", {"metadata": {"name": "sa1"}})
    for name, owner in (("p1", "sa1"), ("p2", "other")):
        spec = {"serviceAccountName": owner, "containers": [{"name": "c", "image": "i"}]}
        kube_bare.admin.post(f"{base}/pods", {"metadata": {"name": name}, "spec": spec})
    for name, body in BAD_REQUESTS:
        real = kube_bare.admin.post(f"{base}/serviceaccounts/{name}/token", {**REVIEW, **body}).json
        with pytest.raises(StatusError) as error:
            tokens.request("default", name, {**REVIEW, **body})
        assert error.value.body() == real
