"""Signs certificate requests of others with the plane's authority."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from torchyard.apiserver.access.certificate_dir import KeyPair
from torchyard.apiserver.access.certificates import load_key

_EXTENDED = {"client auth": ExtendedKeyUsageOID.CLIENT_AUTH, "server auth": ExtendedKeyUsageOID.SERVER_AUTH}
_BASIC = ("digital signature", "key encipherment")


def sign_request(
    authority: KeyPair, request: bytes, usages: Sequence[str], not_before: datetime, not_after: datetime
) -> bytes:
    """The certificate of a PKCS #10 request in PEM: its subject, key and alternative names, with these usages.

    Nothing else of the request is taken over. The certificate does not outlive the authority.
    """
    unknown = [usage for usage in usages if usage not in (*_EXTENDED, *_BASIC)]
    if unknown:
        raise ValueError(f"usages are not supported: {', '.join(unknown)}")
    csr = x509.load_pem_x509_csr(request)
    issuer, issuer_key = x509.load_pem_x509_certificate(authority.certificate), load_key(authority.key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(csr.subject)
        .issuer_name(issuer.subject)
        .public_key(csr.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(min(not_after, issuer.not_valid_after_utc))
    )
    if any(usage in _BASIC for usage in usages):
        builder = builder.add_extension(_key_usage(usages), critical=True)
    extended = [_EXTENDED[usage] for usage in usages if usage in _EXTENDED]
    if extended:
        builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    try:
        names = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        builder = builder.add_extension(names, critical=False)
    except x509.ExtensionNotFound:
        pass
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _key_usage(usages: Sequence[str]) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature="digital signature" in usages,
        key_encipherment="key encipherment" in usages,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
