"""Bad requests get the same status, reason and message on both servers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from tests.conformance.objects import Space, config_map
from tests.support.http import APPLY, JSON, JSON_PATCH, MERGE
from tests.support.kubernetes import Server

from torchyard.apiserver.access.certificates import ensure

NO_SUCH_TYPE = (
    'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string into Go struct field '
    "PodSpec.spec.containers of type []v1.Container"
)
UNKNOWN = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.colour"'
TOO_LONG = 'ConfigMap "{}" is invalid: metadata.name: Invalid value: "{}": must be no more than 253 characters'
LONG = "x" * 254
POD: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}

# name → (method, resource, name, query, body, Content-Type), (status, reason, message)
Request = tuple[str, str, str, dict[str, str], Any, str]
CASES: dict[str, tuple[Request, tuple[int, str, str]]] = {
    "a value of a wrong type": (
        ("POST", "pods", "", {}, {**POD, "spec": {"containers": "x"}}, JSON),
        (400, "BadRequest", NO_SUCH_TYPE),
    ),
    "an unknown field": (
        ("POST", "pods", "", {"fieldValidation": "Strict"}, {**POD, "spec": {**POD["spec"], "colour": 1}}, JSON),
        (400, "BadRequest", UNKNOWN),
    ),
    "a body that is too large": (
        ("POST", "configmaps", "", {}, b" " * (3 * 1024 * 1024 + 1), JSON),
        (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
    ),
    "a label selector that is none": (
        ("GET", "pods", "", {"labelSelector": "a in (b"}, None, ""),
        (400, "BadRequest", "unable to parse requirement: found '', expected: ',' or ')'"),
    ),
    "a field that cannot be selected by": (
        ("GET", "pods", "", {"fieldSelector": "spec.colour=red"}, None, ""),
        (400, "BadRequest", "field label not supported: spec.colour"),
    ),
    "a patch that is no JSON": (
        ("PATCH", "configmaps", "m", {}, b"{", MERGE),
        (400, "BadRequest", "error decoding patch: unexpected end of JSON input"),
    ),
    "a patch whose test fails": (
        ("PATCH", "configmaps", "m", {}, [{"op": "test", "path": "/data/a", "value": "9"}], JSON_PATCH),
        (422, "Invalid", "the server rejected our request due to an error in our request"),
    ),
    "a patch of a format that is none": (
        ("PATCH", "configmaps", "m", {}, {}, "application/odd+json"),
        (415, "UnsupportedMediaType", "415: Unsupported Media Type"),
    ),
    "an apply without a manager": (
        ("PATCH", "configmaps", "m", {}, config_map("m"), APPLY),
        (
            422,
            "Invalid",
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
        ),
    ),
    "a name that is too long": (
        ("POST", "configmaps", "", {}, config_map(LONG), JSON),
        (422, "Invalid", TOO_LONG.format(LONG, LONG)),
    ),
    "a version that is no longer the latest": (
        ("PUT", "configmaps", "m", {}, config_map("m", resourceVersion="1"), JSON),
        (
            409,
            "Conflict",
            'Operation cannot be fulfilled on configmaps "m": the object has been modified; please apply your changes '
            "to the latest version and try again",
        ),
    ),
    "an object that is not there": (
        ("GET", "configmaps", "nobody", {}, None, ""),
        (404, "NotFound", 'configmaps "nobody" not found'),
    ),
    "a name that is taken": (
        ("POST", "configmaps", "", {}, config_map("m"), JSON),
        (409, "AlreadyExists", 'configmaps "m" already exists'),
    ),
    "a dry run of half": (
        ("POST", "configmaps", "", {"dryRun": "Half"}, config_map("n"), JSON),
        (
            422,
            "Invalid",
            'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Half"]: supported values: "All"',
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_request_gets_its_status_reason_and_message(space: Space, case: str) -> None:
    space.make("configmaps", config_map("m"))
    (method, resource, name, query, body, media), expected = CASES[case]
    headers = {"Content-Type": media} if media else {}
    answer = space.api.request(method, space.path(resource, name), body, query=query, headers=headers)
    assert (answer.status, answer.reason, answer.message) == expected
    assert (answer.json["kind"], answer.json["code"]) == ("Status", answer.status)


def test_a_missing_namespace_is_named(space: Space) -> None:
    answer = space.api.post("/api/v1/namespaces/nowhere/configmaps", config_map("m"))
    assert (answer.status, answer.reason, answer.message) == (404, "NotFound", 'namespaces "nowhere" not found')
    assert answer.json["details"] == {"name": "nowhere", "kind": "namespaces"}


def test_an_expired_token_is_rejected(server: Server, space: Space) -> None:
    at = space.path("serviceaccounts", "default", "token")
    token = space.api.post(at, {"spec": {}}).json["status"]["token"]
    late = aged(token, signing_key(server))
    assert space.api.as_user(aged(token, signing_key(server), seconds=0)).get("/api").status == 200
    answer = space.api.as_user(late).get("/api")
    assert (answer.status, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")


def signing_key(server: Server) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    """The key that signs the tokens of this server's service accounts."""
    at = server.kubeconfig.parent
    file = at / "service-accounts.key" if server.real else at / "pki" / "service-accounts.key"
    key = load_pem_private_key(file.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    return key


def aged(token: str, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, *, seconds: int = 100_000) -> str:
    """The same token, issued that much earlier."""
    header, payload, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    for name in ("exp", "iat", "nbf"):
        claims[name] -= seconds
    text = f"{header}.{_encoded(json.dumps(claims).encode())}"
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        r, s = utils.decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{text}.{_encoded(signature)}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_a_certificate_of_somebody_else_opens_nothing(server: Server, tmp_path: Path) -> None:
    theirs = ensure(tmp_path).directory
    shown = (str(theirs / "admin.crt"), str(theirs / "admin.key"))
    answer = server.admin.as_user("", shown).get("/api/v1/pods")
    assert (answer.status, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")
