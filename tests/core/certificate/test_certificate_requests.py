"""What the signers accept and when requests are deleted. The refusals are those of kube-controller-manager 1.34."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tests.support.certificates import certificate_request

from torchyard.api.times import to_rfc3339
from torchyard.apiserver.access.certificates import ensure
from torchyard.apiserver.access.request_signing import sign_request
from torchyard.core.certificate.approval import access_review, permissions
from torchyard.core.certificate.cleaning import seconds_left
from torchyard.core.certificate.request import decode_request
from torchyard.core.certificate.signing import refusal, validity

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
CLIENT, KUBELET, SERVING = (
    f"kubernetes.io/{name}" for name in ("kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving")
)
SIGNATURE, ENCIPHERMENT = "digital signature", "key encipherment"
NODE = ("system:node:n1", ["system:nodes"])


def csr(signer: str, usages: list[str], name: str = "jane", groups: Any = (), **names: Any) -> dict[str, Any]:
    spec = {"request": certificate_request(name, groups, **names), "signerName": signer, "usages": usages}
    return {"metadata": {"name": "r", "creationTimestamp": to_rfc3339(NOW)}, "spec": spec}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (csr(CLIENT, ["client auth"]), ""),
        (csr(CLIENT, [SIGNATURE, ENCIPHERMENT, "client auth"], dns=["a.b"], uris=["spiffe://x/y"]), ""),
        (csr(CLIENT, ["server auth", "client auth"]), "invalid usage for client certificate: server auth"),
        (csr(CLIENT, ["client auth"], groups=["system:masters"]), "subject organization system:masters is not allowed"),
        (
            csr(KUBELET, [SIGNATURE, "client auth"], "admin", ["system:nodes"], earlier_names=["system:node:n1"]),
            "subject has more than one common name",
        ),
        (csr(CLIENT, [SIGNATURE]), "missing required usage for client certificate: client auth"),
        (csr(SERVING, [SIGNATURE, "server auth"], *NODE, dns=["n1"], ips=["10.0.0.1"]), ""),
        (csr(SERVING, [SIGNATURE, ENCIPHERMENT, "server auth"], *NODE, dns=["n1"]), ""),
        (
            csr(SERVING, [SIGNATURE, "server auth"], "system:node:n1", ["system:nodes", "x"], dns=["n1"]),
            "subject organization is not system:nodes",
        ),
        (
            csr(SERVING, [SIGNATURE, "server auth"], "n1", ["system:nodes"], dns=["n1"]),
            "subject common name does not begin with system:node:",
        ),
        (csr(SERVING, [SIGNATURE, "server auth"], *NODE), "DNS or IP subjectAltName is required"),
        (
            csr(SERVING, [SIGNATURE, "server auth"], *NODE, dns=["n1"], emails=["a@b.c"]),
            "Email subjectAltNames are not allowed",
        ),
        (
            csr(SERVING, [SIGNATURE, "server auth"], *NODE, dns=["n1"], uris=["spiffe://x/y"]),
            "URI subjectAltNames are not allowed",
        ),
        (
            csr(SERVING, [SIGNATURE, "client auth"], *NODE, dns=["n1"]),
            "usages did not match [digital signature key encipherment server auth]",
        ),
        (csr(KUBELET, [ENCIPHERMENT, SIGNATURE, "client auth"], *NODE), ""),
        (csr(KUBELET, [SIGNATURE, "client auth"], *NODE, dns=["n1"]), "DNS subjectAltNames are not allowed"),
        (csr(KUBELET, [SIGNATURE, "client auth"], *NODE, ips=["10.0.0.1"]), "IP subjectAltNames are not allowed"),
        (
            csr(KUBELET, ["client auth"], *NODE),
            "usages did not match [client auth digital signature key encipherment]",
        ),
    ],
)
def test_a_signer_refuses_other_requests_with_upstreams_reason(request_: dict[str, Any], message: str) -> None:
    spec = request_["spec"]
    assert refusal(spec["signerName"], decode_request(request_), spec["usages"]) == message


def test_the_last_common_name_counts_as_for_the_owner_of_a_certificate() -> None:
    assert decode_request(csr(CLIENT, ["client auth"], "jane", earlier_names=["admin"])).common_name == "jane"


@pytest.mark.parametrize(
    ("seconds", "minutes"), [(None, 525_595), (600, 10), (3600, 60), (9 * 3600, 535), (2**31 - 1, 525_595)]
)
def test_a_certificate_is_valid_as_long_as_requested_within_limits(seconds: int | None, minutes: int) -> None:
    request = csr(CLIENT, ["client auth"])
    request["spec"]["expirationSeconds"] = seconds
    assert validity(request, NOW) == (NOW - timedelta(minutes=5), NOW + timedelta(minutes=minutes))


def test_a_signed_certificate_has_what_was_requested_and_nothing_else(tmp_path: Path) -> None:
    authority = ensure(tmp_path).load("ca")
    request = csr(SERVING, [SIGNATURE, "server auth"], *NODE, dns=["n1"], ips=["10.0.0.1"])
    now = datetime.now(UTC).replace(microsecond=0)
    decoded = decode_request(request)
    signed = sign_request(authority, decoded.pem, request["spec"]["usages"], *validity(request, now))
    certificate = x509.load_pem_x509_certificate(signed)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    assert certificate.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    assert certificate.not_valid_before_utc == now - timedelta(minutes=5)
    extensions = certificate.extensions
    assert [extension.critical for extension in extensions] == [True, False, True, False, False]
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1"]
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    with pytest.raises(ValueError, match="cert sign"):
        sign_request(authority, decoded.pem, ["cert sign"], *validity(request, now))
    later = sign_request(authority, decoded.pem, ["server auth"], now, now + timedelta(days=36500))
    limit = x509.load_pem_x509_certificate(authority.certificate).not_valid_after_utc
    assert x509.load_pem_x509_certificate(later).not_valid_after_utc == limit


def test_kubelets_are_approved_for_their_own_or_any_node() -> None:
    request = csr(KUBELET, [SIGNATURE, "client auth"], *NODE)
    request["spec"]["username"] = "system:bootstrap:a"
    assert permissions(request, decode_request(request)) == ["nodeclient"]
    request["spec"]["username"] = "system:node:n1"
    assert permissions(request, decode_request(request)) == ["selfnodeclient", "nodeclient"]
    attributes = access_review(request, "selfnodeclient")["spec"]["resourceAttributes"]
    assert (attributes["verb"], attributes["subresource"]) == ("create", "selfnodeclient")
    other = csr(CLIENT, ["client auth"], *NODE)
    assert permissions(other, decode_request(other)) == []


def test_old_requests_are_deleted(tmp_path: Path) -> None:
    def condition(type: str, age: timedelta) -> dict[str, Any]:
        return {"conditions": [{"type": type, "status": "True", "lastUpdateTime": to_rfc3339(NOW - age)}]}

    pending = csr(CLIENT, ["client auth"])
    hour = timedelta(hours=1)
    assert seconds_left(pending, NOW) == 24 * 3600
    for type in ("Denied", "Failed"):
        assert seconds_left({**pending, "status": condition(type, hour / 2)}, NOW) == 1800
    assert seconds_left({**pending, "status": condition("Approved", 2 * hour)}, NOW) is None
    signed = sign_request(ensure(tmp_path).load("ca"), decode_request(pending).pem, ["client auth"], NOW, NOW + hour)
    encoded = base64.b64encode(signed).decode()
    assert (
        seconds_left({**pending, "status": {**condition("Approved", 2 * hour), "certificate": encoded}}, NOW) == -3600
    )
    expired = {**condition("Approved", timedelta()), "certificate": encoded}
    assert seconds_left({**pending, "status": expired}, NOW + hour / 2) == 1800
