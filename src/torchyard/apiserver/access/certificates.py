"""The plane's own certificate authority, the certificates it signs, and the key that signs service-account tokens.

All files are in one directory, readable by its owner only, and are reused on the next start. A certificate is issued
again when it is missing, damaged, signed by another authority, lacks a name, or is about to expire. Keys are kept, so
that a kubeconfig with the old authority still works. This module does not decide what a certificate's owner may do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from torchyard.api.errors import YardError
from torchyard.apiserver.access.certificate_dir import (
    FRONT_PROXY_AUTHORITY,
    FRONT_PROXY_CLIENT,
    CertificateDir,
    KeyPair,
    own_names,
    write,
)

AUTHORITY_LIFE = timedelta(days=3650)
CERTIFICATE_LIFE = timedelta(days=365)
# A certificate is renewed when less than this share of its lifetime is left.
RENEWAL_SHARE = 1 / 5
# A client's clock may be slightly behind.
CLOCK_SKEW = timedelta(minutes=5)
_PAIRS = ("ca", "server", "admin", FRONT_PROXY_AUTHORITY, FRONT_PROXY_CLIENT)


def ensure(directory: Path, *, names: Iterable[str] = (), now: datetime | None = None) -> CertificateDir:
    """Ensure a current authority, server certificate, admin certificate and token key in the directory.

    `names` are further host names or addresses that clients use for the server. Calling it again renews what is about
    to expire; see `certificate_check.ensure`, which calls it only if something changed.
    """
    now = now or datetime.now(UTC)
    credentials = ensure_server(directory, names=[*own_names(), *names], now=now)
    ensure_client(credentials, "admin", user="yard-admin", groups=("system:masters",), now=now)
    _ensure_authority(credentials.front_proxy_authority, FRONT_PROXY_AUTHORITY, now)
    request = _client_request(FRONT_PROXY_CLIENT, ())
    _ensure_leaf(credentials, FRONT_PROXY_CLIENT, request, now, authority=FRONT_PROXY_AUTHORITY)
    _ensure_token_key(credentials.service_account_key)
    return credentials


def usable_period(credentials: CertificateDir) -> tuple[datetime, datetime]:
    """When all certificates of the directory are valid and need no renewal: from, until."""
    certificates = [x509.load_pem_x509_certificate(credentials.load(name).certificate) for name in _PAIRS]
    return (
        max(certificate.not_valid_before_utc for certificate in certificates),
        min(_renewal_time(certificate) for certificate in certificates),
    )


def _ensure_token_key(path: Path) -> None:
    if not isinstance(_key(path).curve, ec.SECP256R1):
        raise YardError(
            f"{path} cannot sign tokens: it must be an elliptic-curve key on P-256",
            hint="restore the right file, or move it away so that a new key is generated",
        )


def ensure_server(directory: Path, *, names: Iterable[str], now: datetime | None = None) -> CertificateDir:
    """Ensure a current authority and a certificate for a server with these names in the directory."""
    now = now or datetime.now(UTC)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    credentials = CertificateDir(directory)
    _ensure_authority(credentials.authority, "torchyard-ca", now)
    _ensure_leaf(credentials, "server", _server_request(names), now)
    return credentials


def ensure_client(
    credentials: CertificateDir, name: str, *, user: str, groups: Sequence[str] = (), now: datetime | None = None
) -> KeyPair:
    """A client certificate stored as `name`.crt and `name`.key; the user is its CN, the groups its Os."""
    _ensure_leaf(credentials, name, _client_request(user, groups), now or datetime.now(UTC))
    return credentials.load(name)


def issue_client(
    authority: KeyPair, *, user: str, groups: Sequence[str] = (), life: timedelta = CERTIFICATE_LIFE, now: datetime
) -> KeyPair:
    """A client certificate that is not stored."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign(_client_request(user, groups), key.public_key(), authority, life=life, now=now)
    return KeyPair(_certificate_pem(certificate), _key_pem(key))


@dataclass(frozen=True, slots=True)
class _CertificateTemplate:
    """The contents of a certificate to be issued."""

    subject: x509.Name
    usage: x509.ObjectIdentifier
    names: tuple[str, ...] = ()

    def alternatives(self) -> set[x509.GeneralName]:
        return {_general_name(name) for name in self.names}

    def is_met_by(self, certificate: x509.Certificate) -> bool:
        if certificate.subject != self.subject:
            return False
        try:
            present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return not self.names
        return self.alternatives() <= set(present)


def _server_request(names: Iterable[str]) -> _CertificateTemplate:
    return _CertificateTemplate(_subject("torchyard"), ExtendedKeyUsageOID.SERVER_AUTH, tuple(dict.fromkeys(names)))


def _client_request(user: str, groups: Sequence[str]) -> _CertificateTemplate:
    return _CertificateTemplate(_subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH)


def _subject(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name.encode("idna").decode() if not name.isascii() else name)


def _ensure_authority(path: Path, name: str, now: datetime) -> None:
    key_path = path.with_suffix(".key")
    if path.exists() and not key_path.exists():
        raise YardError(
            f"{path} exists, but its private key {key_path} is missing",
            hint="restore the key, or move the certificate away to start with a new authority",
        )
    key = _key(key_path)
    current = _read_certificate(path)
    if current is not None and current.public_key() == key.public_key() and _is_current(current, now):
        return
    subject = _subject(name)
    builder = _builder(subject, subject, key.public_key(), life=AUTHORITY_LIFE, now=now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    write(path, _certificate_pem(builder.sign(key, hashes.SHA256())))


def _ensure_leaf(
    credentials: CertificateDir, name: str, request: _CertificateTemplate, now: datetime, *, authority: str = "ca"
) -> None:
    path = credentials.directory / f"{name}.crt"
    key = _key(path.with_suffix(".key"))
    issuer = credentials.load(authority)
    current = _read_certificate(path)
    if (
        current is not None
        and current.public_key() == key.public_key()
        and _is_current(current, now)
        and is_signed_by(current, x509.load_pem_x509_certificate(issuer.certificate))
        and request.is_met_by(current)
    ):
        return
    write(path, _certificate_pem(_sign(request, key.public_key(), issuer, life=CERTIFICATE_LIFE, now=now)))


def _sign(
    request: _CertificateTemplate,
    public_key: ec.EllipticCurvePublicKey,
    authority: KeyPair,
    *,
    life: timedelta,
    now: datetime,
) -> x509.Certificate:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = load_key(authority.key)
    builder = _builder(request.subject, issuer.subject, public_key, life=life, now=now)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([request.usage]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
    )
    if request.names:
        alternatives = [_general_name(name) for name in request.names]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    *,
    life: timedelta,
    now: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def is_valid_at(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _is_current(certificate: x509.Certificate, now: datetime) -> bool:
    return is_valid_at(certificate, now) and now < _renewal_time(certificate)


def _renewal_time(certificate: x509.Certificate) -> datetime:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - life * RENEWAL_SHARE


def _read_certificate(path: Path) -> x509.Certificate | None:
    """The certificate at `path`; None when it is missing or invalid."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key at `path`, generated when missing."""
    try:
        return load_key(path.read_bytes())
    except FileNotFoundError:
        key = ec.generate_private_key(ec.SECP256R1())
        write(path, _key_pem(key))
        return key
    except (ValueError, TypeError) as error:
        raise YardError(
            f"{path} is not a private key: {error}",
            hint="restore the right file, or move it away so that a new key is generated",
        ) from error


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """A private key of this module: an elliptic-curve key in PEM."""
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("an elliptic-curve key was expected")
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # SEC1 ("EC PRIVATE KEY") is the format that all Kubernetes tools read.
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
