"""Client certificates and tokens that are wrong in one way each: we accept exactly what kube-apiserver accepts."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from tests.support.http import Answer, Client
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

from torchyard.api.objects import Object
from torchyard.apiserver.access.certificate_dir import KeyPair

WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
UID_ATTRIBUTE = ObjectIdentifier("1.3.6.1.4.1.57683.2")
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
DAY = timedelta(days=1)


def _name(*attributes: tuple[ObjectIdentifier, str]) -> x509.Name:
    with warnings.catch_warnings(action="ignore"):  # about attributes that are too short or too long
        return x509.Name([x509.NameAttribute(oid, value, _validate=False) for oid, value in attributes])


def _person(name: str = "alice", *groups: str) -> x509.Name:
    return _name(*((NameOID.ORGANIZATION_NAME, group) for group in groups), (NameOID.COMMON_NAME, name))


@dataclass(frozen=True)
class Wanted:
    """A certificate; the defaults make one that every server accepts."""

    subject: x509.Name = field(default_factory=_person)
    usages: tuple[ObjectIdentifier, ...] = (CLIENT,)
    start: timedelta = -DAY
    end: timedelta = DAY
    signer: str = "authority"  # or "itself", "stranger", "impostor" (the authority's name, another key), "intermediate"
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = ()


CERTIFICATES: dict[str, Wanted] = {
    "good": Wanted(),
    "groups": Wanted(_person("alice", "a", "b")),
    "five hundred groups": Wanted(_person("alice", *(f"group-{number}" for number in range(500)))),
    "masters": Wanted(_person("alice", "system:masters")),
    "expired": Wanted(end=-timedelta(seconds=10)),
    "not yet valid": Wanted(start=timedelta(hours=1)),
    "self-signed": Wanted(signer="itself"),
    "another authority": Wanted(signer="stranger"),
    "another authority of the same name": Wanted(signer="impostor"),
    "of an intermediate authority": Wanted(signer="intermediate"),
    "of a client certificate": Wanted(signer="client"),
    "no name": Wanted(_name((NameOID.ORGANIZATION_NAME, "a"))),
    "empty name": Wanted(_person("", "a")),
    "empty subject": Wanted(_name()),
    "two names": Wanted(_name((NameOID.COMMON_NAME, "first"), (NameOID.COMMON_NAME, "second"))),
    "name and empty name": Wanted(_name((NameOID.COMMON_NAME, "first"), (NameOID.COMMON_NAME, ""))),
    "empty group": Wanted(_name((NameOID.ORGANIZATION_NAME, ""), (NameOID.COMMON_NAME, "alice"))),
    "not ASCII": Wanted(_person("Zoë ☃")),
    "quotes": Wanted(_person('a"b\\c', "d,e")),
    "anonymous": Wanted(_person("system:anonymous")),
    "unauthenticated": Wanted(_person("alice", "system:unauthenticated")),
    "for servers": Wanted(usages=(SERVER,)),
    "for clients and servers": Wanted(usages=(SERVER, CLIENT)),
    "for anything": Wanted(usages=(ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)),
    "for code signing": Wanted(usages=(ExtendedKeyUsageOID.CODE_SIGNING,)),
    "without a usage": Wanted(usages=()),
    "uid": Wanted(_name((UID_ATTRIBUTE, "1234"), (NameOID.COMMON_NAME, "alice"))),
    "two uids": Wanted(_name((UID_ATTRIBUTE, "1"), (UID_ATTRIBUTE, "2"), (NameOID.COMMON_NAME, "alice"))),
    "empty uid": Wanted(_name((UID_ATTRIBUTE, ""), (NameOID.COMMON_NAME, "alice"))),
    "unknown extension": Wanted(extensions=((x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"x"), False),)),
    "unknown critical extension": Wanted(
        extensions=((x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"x"), True),)
    ),
    "is an authority": Wanted(extensions=((x509.BasicConstraints(ca=True, path_length=None), True),)),
}


@dataclass(frozen=True)
class Issuer:
    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    chain: bytes = b""


def _issue(wanted: Wanted, issuer: Issuer, key: ec.EllipticCurvePrivateKey) -> bytes:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(wanted.subject)
        .issuer_name(issuer.name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + wanted.start)
        .not_valid_after(now + wanted.end)
    )
    if wanted.usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(wanted.usages), critical=False)
    for extension, critical in wanted.extensions:
        builder = builder.add_extension(extension, critical=critical)
    certificate = builder.sign(issuer.key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM)


def _issuer(wanted: Wanted, authority: KeyPair, key: ec.EllipticCurvePrivateKey) -> Issuer:
    real = x509.load_pem_x509_certificate(authority.certificate)
    real_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(real_key, ec.EllipticCurvePrivateKey)
    fresh = ec.generate_private_key(ec.SECP256R1())
    match wanted.signer:
        case "itself":
            return Issuer(wanted.subject, key)
        case "stranger":
            return Issuer(_person("stranger"), fresh)
        case "impostor":
            return Issuer(real.subject, fresh)
        case "intermediate" | "client":
            is_authority = wanted.signer == "intermediate"
            extension = (x509.BasicConstraints(ca=is_authority, path_length=None), True)
            middle = Wanted(_person("middle"), usages=(), extensions=(extension,))
            chain = _issue(middle, Issuer(real.subject, real_key), fresh)
            return Issuer(middle.subject, fresh, chain)
    return Issuer(real.subject, real_key)


def _authority(server: Server) -> KeyPair:
    directory = server.kubeconfig.parent / ("clients" if server.real else "pki")
    return KeyPair((directory / "ca.crt").read_bytes(), (directory / "ca.key").read_bytes())


def _with_certificate(server: Server, directory: Path, wanted: Wanted) -> Client:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = _issuer(wanted, _authority(server), key)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate_file, key_file = directory / "client.crt", directory / "client.key"
    certificate_file.write_bytes(_issue(wanted, issuer, key) + issuer.chain)
    key_file.write_bytes(secret)
    return server.admin.as_user("", (str(certificate_file), str(key_file)))


def _identity(answer: Answer) -> tuple[int, Any]:
    if answer.status != 201:
        return answer.status, answer.message
    user: Object = answer.json["status"]["userInfo"]
    extra = {key: [value.partition("=")[0] for value in values] for key, values in (user.get("extra") or {}).items()}
    return answer.status, {**user, "extra": extra}


def _who_am_i(client: Client) -> tuple[int, Any]:
    try:
        return _identity(client.post(WHO_AM_I, REVIEW))
    except (ssl.SSLError, ConnectionError) as error:
        return 0, type(error).__name__


@pytest.mark.cluster
@pytest.mark.parametrize("case", CERTIFICATES)
def test_a_client_certificate_is_accepted_as_on_a_real_server(
    yard: Server, kube: Server, tmp_path: Path, case: str
) -> None:
    ours, theirs = (_who_am_i(_with_certificate(server, tmp_path, CERTIFICATES[case])) for server in (yard, kube))
    assert ours == theirs


@pytest.mark.parametrize(
    "case",
    ["expired", "not yet valid", "self-signed", "another authority", "another authority of the same name"],
)
def test_an_invalid_certificate_is_refused_even_with_a_valid_token_absent(
    yard: Server, tmp_path: Path, case: str
) -> None:
    assert _who_am_i(_with_certificate(yard, tmp_path, CERTIFICATES[case])) == (401, "Unauthorized")


@pytest.mark.cluster
def test_the_authority_itself_as_a_client_is_accepted_as_on_a_real_server(
    yard: Server, kube: Server, tmp_path: Path
) -> None:
    answers = []
    for server in (yard, kube):
        authority = _authority(server)
        certificate_file, key_file = tmp_path / "client.crt", tmp_path / "client.key"
        certificate_file.write_bytes(authority.certificate)
        key_file.write_bytes(authority.key)
        answers.append(_who_am_i(server.admin.as_user("", (str(certificate_file), str(key_file)))))
    assert answers[0] == answers[1]


# --- tokens ---


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _with_algorithm(token: str, algorithm: str, key: bytes) -> str:
    header = _encoded(json.dumps({"alg": algorithm, "typ": "JWT"}).encode())
    signed = f"{header}.{token.split('.')[1]}"
    signature = _encoded(hmac.digest(key, signed.encode(), "sha256")) if algorithm == "HS256" else ""
    return f"{signed}.{signature}"


def _flipped(text: str) -> str:
    return ("B" if text[0] == "A" else "A") + text[1:]


def _tokens(server: Server, token: str) -> dict[str, str]:
    """The token, changed in one way each."""
    header, payload, signature = token.split(".")
    keys = server.admin.get("/openid/v1/jwks").body
    certificate = ssl.PEM_cert_to_DER_cert(_authority(server).certificate.decode())
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    claims["sub"] = "system:serviceaccount:kube-system:default"
    return {
        "good": token,
        "signature padded": f"{token}=",
        "signature padded twice": f"{token}==",
        "header padded": f"{header}=.{payload}.{signature}",
        "payload padded": f"{header}.{payload}=.{signature}",
        "signature with other characters": f"{header}.{payload}.{signature[:5]}!{signature[5:]}",
        "signature with a space": f"{header}.{payload}.{signature[:5]} {signature[5:]}",
        "signature with the other alphabet": f"{header}.{payload}.{signature.replace('-', '+').replace('_', '/')}+",
        "signature changed": f"{header}.{payload}.{_flipped(signature)}",
        "signature missing": f"{header}.{payload}.",
        "signature shortened": f"{header}.{payload}.{signature[:-4]}",
        "signature lengthened": f"{header}.{payload}.{signature}AAAA",
        "no signature part": f"{header}.{payload}",
        "a fourth part": f"{token}.{signature}",
        "an empty fourth part": f"{token}.",
        "a leading dot": f".{token}",
        "alg none": _with_algorithm(token, "none", b""),
        "alg None": _with_algorithm(token, "None", b""),
        "alg HS256 with the key set": _with_algorithm(token, "HS256", keys),
        "alg HS256 with the certificate": _with_algorithm(token, "HS256", certificate),
        "alg HS256 without a key": _with_algorithm(token, "HS256", b""),
        "claims changed": f"{header}.{_encoded(json.dumps(claims).encode())}.{signature}",
        "header changed": f"{_encoded(b'{}')}.{payload}.{signature}",
        "header is a list": f"{_encoded(b'[]')}.{payload}.{signature}",
        "header is not JSON": f"{_encoded(b'x')}.{payload}.{signature}",
        "twice": f"{token}{token}",
        "empty": "..",
        "a hash": hashlib.sha256(token.encode()).hexdigest(),
    }


TOKEN_CASES = (
    *("good", "signature padded", "signature padded twice", "header padded", "payload padded"),
    *("signature with other characters", "signature with a space", "signature with the other alphabet"),
    *("signature changed", "signature missing", "signature shortened", "signature lengthened", "no signature part"),
    *("a fourth part", "an empty fourth part", "a leading dot", "alg none", "alg None", "alg HS256 with the key set"),
    *("alg HS256 with the certificate", "alg HS256 without a key", "claims changed", "header changed"),
    *("header is a list", "header is not JSON", "twice", "empty", "a hash"),
)
NS = "credentials"
ACCOUNT = f"/api/v1/namespaces/{NS}/serviceaccounts"
PODS = f"/api/v1/namespaces/{NS}/pods"
TOKEN_REQUEST = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}


def _prepare(server: Server) -> Server:
    # tests of this module may be spread over several workers, and the fixture's end deletes the namespace
    eventually(lambda: not _is_terminating(server), "the end of an earlier namespace")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}
    assert server.admin.post("/api/v1/namespaces", namespace).status in (201, 409)
    eventually(partial(_exists, server, f"{ACCOUNT}/default"), "the namespace's service account")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    assert server.admin.post(ACCOUNT, account).status in (201, 409)
    return server


def _is_terminating(server: Server) -> bool:
    namespace = server.admin.get(f"/api/v1/namespaces/{NS}")
    return namespace.status == 200 and "deletionTimestamp" in namespace.json["metadata"]


def _exists(server: Server, path: str) -> bool:
    return server.admin.get(path).status == 200


@pytest.fixture(scope="module")
def ours(yard: Server) -> Iterator[Server]:
    yield _prepare(yard)
    yard.admin.delete(f"/api/v1/namespaces/{NS}")


@pytest.fixture(scope="module")
def theirs(kube: Server) -> Iterator[Server]:
    yield _prepare(kube)
    kube.admin.delete(f"/api/v1/namespaces/{NS}")


def _token(server: Server, account: str = "robot", **spec: Any) -> str:
    answer = server.admin.post(f"{ACCOUNT}/{account}/token", {**TOKEN_REQUEST, "spec": spec})
    assert answer.status == 201, answer
    return str(answer.json["status"]["token"])


def _status_with(server: Server, token: str) -> int:
    return server.admin.as_user(token).post(WHO_AM_I, REVIEW).status


@pytest.mark.parametrize("case", TOKEN_CASES)
def test_only_the_token_as_it_was_issued_is_accepted(ours: Server, case: str) -> None:
    token = _tokens(ours, _token(ours))[case]
    assert _status_with(ours, token) == (201 if case == "good" else 401)


@pytest.mark.cluster
@pytest.mark.parametrize("case", TOKEN_CASES)
def test_a_token_is_accepted_as_on_a_real_server(ours: Server, theirs: Server, case: str) -> None:
    statuses = [_status_with(server, _tokens(server, _token(server))[case]) for server in (ours, theirs)]
    assert statuses[0] == statuses[1]


AUTHORIZATIONS = {
    "lower case": "bearer {}",
    "two spaces": "Bearer  {}",
    "tab": "Bearer\t{}",
    "trailing text": "Bearer {} x",
    "leading space": " Bearer {}",
    "trailing space": "Bearer {} ",
    "no scheme": "{}",
    "another scheme": "Basic {}",
    "empty": "",
    "only the scheme": "Bearer",
    "only the scheme and a space": "Bearer ",
    "quoted": 'Bearer "{}"',
    "two tokens": "Bearer {},Bearer {}",
}


@pytest.mark.cluster
@pytest.mark.parametrize("case", AUTHORIZATIONS)
def test_the_authorization_header_is_read_as_on_a_real_server(ours: Server, theirs: Server, case: str) -> None:
    answers = []
    for server in (ours, theirs):
        header = AUTHORIZATIONS[case].replace("{}", _token(server))
        client = server.admin.as_user("")
        answers.append(client.get("/version/", headers={"Authorization": header}).status)
        answers.append(client.post(WHO_AM_I, REVIEW, headers={"Authorization": header}).status)
    assert answers[:2] == answers[2:]


@pytest.mark.cluster
@pytest.mark.parametrize("pair", [("good", "bad"), ("bad", "good"), ("good", "good")])
def test_two_authorization_headers_are_read_as_on_a_real_server(
    ours: Server, theirs: Server, pair: tuple[str, str]
) -> None:
    statuses = []
    for server in (ours, theirs):
        values = {"good": f"Bearer {_token(server)}", "bad": "Bearer x"}
        connection = server.admin.connect()
        connection.putrequest("GET", "/api")
        for name in pair:
            connection.putheader("Authorization", values[name])
        connection.endheaders()
        statuses.append(connection.getresponse().status)
        connection.close()
    assert statuses[0] == statuses[1]


def _pod(server: Server, name: str) -> Object:
    spec = {"containers": [{"name": "main", "image": "image"}], "serviceAccountName": "robot"}
    answer = server.admin.post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    assert answer.status == 201, answer
    pod: Object = answer.json
    return pod


@pytest.mark.parametrize("server_name", ["ours", pytest.param("theirs", marks=pytest.mark.cluster)])
def test_a_token_ends_with_the_object_that_it_is_bound_to(request: pytest.FixtureRequest, server_name: str) -> None:
    server: Server = request.getfixturevalue(server_name)
    pod = _pod(server, "bound")
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "bound"}
    token = _token(server, boundObjectRef=reference)
    assert _status_with(server, token) == 201
    other = {**reference, "uid": "00000000-0000-0000-0000-000000000000"}
    answer = server.admin.post(f"{ACCOUNT}/robot/token", {**TOKEN_REQUEST, "spec": {"boundObjectRef": other}})
    assert answer.status == 409
    answer = server.admin.post(f"{ACCOUNT}/default/token", {**TOKEN_REQUEST, "spec": {"boundObjectRef": reference}})
    assert answer.status == 400
    assert server.admin.delete(f"{PODS}/bound?gracePeriodSeconds=0").status == 200
    eventually(lambda: _status_with(server, token) == 401, "the end of the token", 15)
    assert _pod(server, "bound")["metadata"]["uid"] != pod["metadata"]["uid"]
    assert _status_with(server, token) == 401
    server.admin.delete(f"{PODS}/bound?gracePeriodSeconds=0")


@pytest.mark.parametrize("server_name", ["ours", pytest.param("theirs", marks=pytest.mark.cluster)])
def test_a_token_for_another_audience_or_of_a_deleted_account_is_refused(
    request: pytest.FixtureRequest, server_name: str
) -> None:
    server: Server = request.getfixturevalue(server_name)
    assert _status_with(server, _token(server, audiences=["elsewhere"])) == 401
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "short-lived"}}
    assert server.admin.post(ACCOUNT, account).status == 201
    token = _token(server, "short-lived")
    assert _status_with(server, token) == 201
    assert server.admin.delete(f"{ACCOUNT}/short-lived").status == 200
    assert server.admin.post(ACCOUNT, account).status == 201
    eventually(lambda: _status_with(server, token) == 401, "the end of the token", 15)
    server.admin.delete(f"{ACCOUNT}/short-lived")


@pytest.mark.cluster
def test_a_token_of_another_server_is_refused(ours: Server, theirs: Server) -> None:
    """Both servers have the same issuer and audience, but other keys."""
    assert _status_with(ours, _token(theirs)) == 401
    assert _status_with(theirs, _token(ours)) == 401


def test_no_credential_is_in_the_log(ours: Server) -> None:
    token = _token(ours)
    path = f"/api/v1/namespaces/{NS}/secrets"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"}, "stringData": {"k": "hidden-value"}}
    assert ours.admin.post(path, secret).status == 201
    for body in (b"{", json.dumps(secret).encode()[:-5], b"\xff"):
        ours.admin.post(path, body, headers={"Content-Type": "application/json"})
    assert _status_with(ours, f"{token}=") == 401
    assert ours.admin.delete(f"{path}/hidden").status == 200
    log = (ours.kubeconfig.parents[1] / "yard.log").read_text()
    state = ours.kubeconfig.parent
    for credential in (token, ours.token, (state / "pki" / "ca.key").read_text()[40:80], "hidden-value"):
        assert credential not in log
    modes = {path.stat().st_mode & 0o077 for path in (state, *state.iterdir(), *(state / "pki").iterdir())}
    assert modes == {0}
