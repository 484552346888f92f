"""Certificate requests, as clients and kubelets make them."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def certificate_request(
    name: str,
    groups: Sequence[str] = (),
    *,
    dns: Sequence[str] = (),
    ips: Sequence[str] = (),
    emails: Sequence[str] = (),
    uris: Sequence[str] = (),
    key: ec.EllipticCurvePrivateKey | None = None,
    earlier_names: Sequence[str] = (),
) -> str:
    """`spec.request` of a CertificateSigningRequest. `earlier_names` are common names before the name."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([*subject, *(x509.NameAttribute(NameOID.COMMON_NAME, each) for each in (*earlier_names, name))])
    )
    names: list[x509.GeneralName] = [x509.DNSName(value) for value in dns]
    names += [x509.IPAddress(ipaddress.ip_address(value)) for value in ips]
    names += [x509.RFC822Name(value) for value in emails]
    names += [x509.UniformResourceIdentifier(value) for value in uris]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    request = builder.sign(key or new_key(), hashes.SHA256())
    return base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()
