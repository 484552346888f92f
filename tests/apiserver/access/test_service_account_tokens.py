"""Service account tokens: requested, used, bound, expired, revoked."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.access.memory_lister import MemoryLister
from tests.support.kubernetes import Server

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
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
def memory() -> MemoryLister:
    return MemoryLister(account(), pod("p1", "sa1"), pod("p2", "other"), NODE)


@pytest.fixture
def tokens(tmp_path: Path, memory: MemoryLister, clock: Clock) -> ServiceAccountTokens:
    return ServiceAccountTokens(ensure(tmp_path / "pki").service_account_key.read_bytes(), memory, clock=clock)


def issued(tokens: ServiceAccountTokens, **spec: Any) -> str:
    token: str = tokens.request("default", "sa1", {**REVIEW, "spec": spec})["status"]["token"]
    return token


def parts(token: str) -> tuple[Object, Object]:
    header, payload, _ = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in [*token.split(".")[:2], "e30"])
    return header, payload


def test_a_token_request_returns_the_token_and_all_defaults(tokens: ServiceAccountTokens) -> None:
    response = tokens.request("default", "sa1", {**REVIEW, "spec": {}})
    status = response.pop("status")
    assert response == {
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


def test_a_token_authenticates_its_service_account(tokens: ServiceAccountTokens) -> None:
    response = tokens.authenticate(issued(tokens))
    assert response is not None
    assert response.audiences == (ISSUER,)
    assert (response.user.name, response.user.uid) == ("system:serviceaccount:default:sa1", "u1")
    assert response.user.groups == ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")


def test_a_bound_token_names_its_pod_and_node(tokens: ServiceAccountTokens) -> None:
    token = issued(tokens, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p1", "uid": "uid-p1"})
    response = tokens.authenticate(token)
    assert response is not None
    extra = {key.rpartition("/")[2]: values for key, values in response.user.extra.items()}
    del extra["credential-id"]
    assert extra == {
        "pod-name": ("p1",),
        "pod-uid": ("uid-p1",),
        "node-name": ("n1",),
        "node-uid": ("uid-n1",),
    }


def test_the_api_version_of_a_bound_object_may_be_left_out(tokens: ServiceAccountTokens) -> None:
    """As upstream, which compares the kind without a group."""
    token = issued(tokens, boundObjectRef={"kind": "Pod", "name": "p1", "uid": "uid-p1"})
    response = tokens.authenticate(token)
    assert response is not None
    assert response.user.extra["authentication.kubernetes.io/pod-name"] == ("p1",)


@pytest.mark.parametrize("deleted", ["account deleted", "account recreated", "pod deleted", "expired", "not yet valid"])
def test_a_token_is_invalid_after_its_bound_object_is_deleted(
    tokens: ServiceAccountTokens, memory: MemoryLister, clock: Clock, deleted: str
) -> None:
    token = issued(tokens, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p1"})
    assert tokens.authenticate(token) is not None
    match deleted:
        case "account deleted":
            memory.remove(account())
        case "account recreated":
            memory.put(account("u2"))
        case "pod deleted":
            memory.remove(pod("p1", "sa1"))
        case "expired":
            clock.now += 3601
        case _:
            clock.now -= 60
    with pytest.raises(TokenRejected):
        tokens.authenticate(token)


def test_a_pod_token_stays_valid_after_its_node_is_deleted(tokens: ServiceAccountTokens, memory: MemoryLister) -> None:
    token = issued(tokens, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p1"})
    memory.remove(NODE)
    assert tokens.authenticate(token) is not None


def tampered(token: str) -> str:
    header, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    claims["sub"] = "system:serviceaccount:kube-system:root"
    return f"{header}.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.{signature}"


def test_tokens_with_another_signature_are_not_authenticated(
    tokens: ServiceAccountTokens, memory: MemoryLister, tmp_path: Path
) -> None:
    other_tokens = ServiceAccountTokens(ensure(tmp_path / "other").service_account_key.read_bytes(), memory)
    good = issued(tokens)
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=") + "." + good.split(".")[1] + "."
    for text in (
        tampered(good),
        issued(other_tokens),
        unsigned,
        "",
        ".",
        "..",
        "a.b.c",
        "x" * 5000,
        good[:-3],
        "é.é.é",
    ):
        assert tokens.authenticate(text) is None, text


def test_tokens_survive_a_restart(
    tokens: ServiceAccountTokens, memory: MemoryLister, clock: Clock, tmp_path: Path
) -> None:
    restarted = ServiceAccountTokens(ensure(tmp_path / "pki").service_account_key.read_bytes(), memory, clock=clock)
    assert restarted.authenticate(issued(tokens)) is not None


def test_the_published_key_verifies_tokens(tokens: ServiceAccountTokens) -> None:
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
def test_invalid_token_requests_fail_with_the_real_servers_messages(
    kube_bare: Server, tokens: ServiceAccountTokens
) -> None:
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


def test_a_legacy_token_is_valid_only_while_its_secret_holds_it(
    tokens: ServiceAccountTokens, memory: MemoryLister
) -> None:
    def secret(data: str) -> Object:
        encoded = base64.b64encode(data.encode()).decode()
        metadata = {"name": "s1", "namespace": "default", "uid": "uid-s1"}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"token": encoded}}

    token = tokens.issue_for_secret(account(), "s1")
    memory.put(secret(token))
    response = tokens.authenticate(token)
    assert response is not None and response.user.name == "system:serviceaccount:default:sa1"
    memory.put(secret("another token"))
    with pytest.raises(TokenRejected, match="Token does not match server's copy"):
        tokens.authenticate(token)
    memory.remove(secret(""))
    with pytest.raises(TokenRejected, match="Token has been invalidated"):
        tokens.authenticate(token)


def test_a_token_ends_a_minute_after_the_deletion_that_a_finalizer_delays(
    tokens: ServiceAccountTokens, memory: MemoryLister, clock: Clock
) -> None:
    bound = {"pod": {"name": "p1", "uid": "uid-p1"}}
    token, _ = tokens.issue(account(), bound=bound)
    deleted = pod("p1", "sa1")
    deleted["metadata"]["deletionTimestamp"] = to_rfc3339(datetime.fromtimestamp(clock.now, UTC))
    memory.put(deleted)
    clock.now += 59
    assert tokens.authenticate(token) is not None
    clock.now += 2
    with pytest.raises(TokenRejected, match="has been invalidated"):
        tokens.authenticate(token)


def test_a_token_has_one_spelling(tokens: ServiceAccountTokens) -> None:
    """The last character of a signature has bits that mean nothing; padding and other alphabets mean nothing either."""
    token, _ = tokens.issue(account())
    with_unused_bits = token[:-1] + chr(ord(token[-1]) + 1)
    for spelling in (with_unused_bits, f"{token}=", f"{token}==", f"{token}\n", f" {token}"):
        assert tokens.authenticate(spelling) is None
    assert tokens.authenticate(token) is not None
