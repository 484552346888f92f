"""Authentication by tokens, token files and certificates, and anonymous requests."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from multidict import CIMultiDict

from torchyard.api.errors import StatusError, YardError
from torchyard.apiserver.access.authentication import (
    ANONYMOUS,
    AuthenticationResponse,
    CertificateAuthenticator,
    RequestAuthenticator,
    StaticTokenAuthenticator,
    TokenRejected,
    User,
    read_token_file,
)
from torchyard.apiserver.access.certificates import ensure, issue_client

NOW = datetime.now(UTC)
AUDIENCE = "https://kubernetes.default.svc"


class Elsewhere:
    """A token authenticator with a token for another audience and an expired one."""

    def authenticate(self, token: str) -> AuthenticationResponse | None:
        if token == "old":
            raise TokenRejected("service account token has expired")
        return AuthenticationResponse(User("robot"), ("a", "b")) if token == "for-others" else None


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    return ensure(tmp_path / "pki").directory


@pytest.fixture
def authentication(pki: Path) -> RequestAuthenticator:
    tokens = StaticTokenAuthenticator(
        {"secret": User("admin", "1", ("system:masters",)), "plain": User("bob")}, [AUDIENCE]
    )
    certificates = CertificateAuthenticator((pki / "ca.crt").read_bytes())
    return RequestAuthenticator(certificates, [tokens, Elsewhere()], audiences=[AUDIENCE])


def bearer(token: str) -> CIMultiDict[str]:
    return CIMultiDict({"authorization": f"Bearer {token}"})


def client_certificate(pki: Path) -> bytes:
    pair = issue_client(ensure(pki).load("ca"), user="carol", groups=("dev",), now=NOW)
    return x509.load_pem_x509_certificate(pair.certificate).public_bytes(Encoding.DER)


def test_a_static_token_authenticates_its_user(authentication: RequestAuthenticator) -> None:
    assert authentication.authenticate(bearer("secret")) == User(
        "admin", "1", ("system:masters", "system:authenticated")
    )
    assert authentication.authenticate(bearer("plain")) == User("bob", "", ("system:authenticated",))


def test_a_request_without_credentials_is_anonymous(authentication: RequestAuthenticator) -> None:
    assert authentication.authenticate(CIMultiDict()) is ANONYMOUS
    assert authentication.authenticate(CIMultiDict({"Authorization": "Basic YTpi"})) is ANONYMOUS


@pytest.mark.parametrize("token", ["wrong", "old", "for-others", "a.b.c", "ä", "secret2"])
def test_an_unknown_or_rejected_token_is_unauthorized(authentication: RequestAuthenticator, token: str) -> None:
    with pytest.raises(StatusError) as error:
        authentication.authenticate(bearer(token))
    assert error.value.body() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }


def test_anonymous_requests_can_be_disabled(pki: Path) -> None:
    certificates = CertificateAuthenticator((pki / "ca.crt").read_bytes())
    closed = RequestAuthenticator(certificates, [], audiences=[AUDIENCE], anonymous=False)
    with pytest.raises(StatusError, match="Unauthorized"):
        closed.authenticate(CIMultiDict())


@pytest.mark.parametrize(
    ("encoded", "name"),
    [(base64.urlsafe_b64encode(b"secret").rstrip(b"=").decode(), "admin"), ("%%%", None), ("", None)],
)
def test_a_websocket_subprotocol_can_carry_the_token(
    authentication: RequestAuthenticator, encoded: str, name: str | None
) -> None:
    offered = f"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.{encoded}"
    headers = CIMultiDict({"Sec-WebSocket-Protocol": offered})
    if name is None:
        with pytest.raises(StatusError, match="Unauthorized"):
            authentication.authenticate(headers)
    else:
        assert authentication.authenticate(headers).name == name


def test_a_client_certificate_authenticates_its_user(authentication: RequestAuthenticator, pki: Path) -> None:
    user = authentication.authenticate(CIMultiDict(), client_certificate(pki))
    assert (user.name, user.groups) == ("carol", ("dev", "system:authenticated"))
    assert user.extra["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")


def test_expired_foreign_and_server_certificates_are_unauthorized(
    authentication: RequestAuthenticator, pki: Path, tmp_path: Path
) -> None:
    credentials = ensure(pki)
    past = issue_client(credentials.load("ca"), user="old", life=timedelta(days=1), now=NOW - timedelta(days=3))
    other_authority = ensure(tmp_path / "other").load("admin")
    for pem in (past.certificate, other_authority.certificate, credentials.load("server").certificate):
        der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
        with pytest.raises(StatusError, match="Unauthorized"):
            authentication.authenticate(CIMultiDict(), der)
    with pytest.raises(StatusError, match="Unauthorized"):
        authentication.authenticate(CIMultiDict(), b"not a certificate")


def test_a_cached_certificate_is_rejected_once_it_expires(pki: Path) -> None:
    users = CertificateAuthenticator((pki / "ca.crt").read_bytes())
    pair = issue_client(ensure(pki).load("ca"), user="x", life=timedelta(hours=1), now=NOW)
    der = x509.load_pem_x509_certificate(pair.certificate).public_bytes(Encoding.DER)
    assert users.authenticate(der, NOW) is not None
    assert users.authenticate(der, NOW + timedelta(hours=2)) is None


def test_a_valid_token_is_used_when_the_certificate_is_invalid(
    authentication: RequestAuthenticator, tmp_path: Path
) -> None:
    other_authority = ensure(tmp_path / "other").load("admin")
    der = x509.load_pem_x509_certificate(other_authority.certificate).public_bytes(Encoding.DER)
    assert authentication.authenticate(bearer("plain"), der).name == "bob"


def test_a_token_file_has_kube_apiservers_format(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text('t1,alice,1,"dev,ops"\nt2, bob ,2\n\nt3,carol,,system:masters\n')
    assert read_token_file(path) == {
        "t1": User("alice", "1", ("dev", "ops")),
        "t2": User("bob", "2"),
        "t3": User("carol", "", ("system:masters",)),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t1,alice", "line 1: expected at least 3 columns .*, got 2"),
        ("t1,a,1\n,bob,2", "line 2: the token is empty"),
        ("t1,,1", "line 1: the user name is empty"),
        ("t1,a,1\nt1,b,2", "line 2: user 'b' has the same token as user 'a'"),
    ],
)
def test_an_invalid_token_file_is_rejected_with_the_line_number(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text(text)
    with pytest.raises(YardError, match=message):
        read_token_file(path)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file or directory$"), (b"\xff\xfe,a,1", "'utf-8' codec can't decode")]
)
def test_an_unreadable_token_file_is_named_in_the_error(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "tokens.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(YardError, match=rf"cannot read the token file .*tokens\.csv: {reason}"):
        read_token_file(path)


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        (
            {"token": "plain"},
            {
                "authenticated": True,
                "user": {"username": "bob", "groups": ["system:authenticated"]},
                "audiences": [AUDIENCE],
            },
        ),
        ({"token": "bad"}, {"user": {}, "error": "invalid bearer token"}),
        ({"token": "old"}, {"user": {}, "error": "[invalid bearer token, service account token has expired]"}),
        (
            {"token": "for-others"},
            {
                "user": {},
                "error": '[invalid bearer token, token audiences ["a" "b"] is invalid for the target audiences'
                f' ["{AUDIENCE}"]]',
            },
        ),
        (
            {"token": "for-others", "audiences": ["b", "c"]},
            {"authenticated": True, "user": {"username": "robot"}, "audiences": ["b"]},
        ),
    ],
)
def test_token_reviews(
    authentication: RequestAuthenticator, spec: dict[str, object], status: dict[str, object]
) -> None:
    assert authentication.review_token(spec) == status


def test_a_token_review_requires_a_token(authentication: RequestAuthenticator) -> None:
    with pytest.raises(StatusError, match="token is required for TokenReview in authentication"):
        authentication.review_token({})
