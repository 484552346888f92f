"""What a client certificate says about its owner. `authentication` makes a user of it."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from torchyard.apiserver.access.certificates import is_signed_by

# The attribute of a subject that holds the user's uid (upstream's AllowParsingUserUIDFromCertAuth).
_UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
# What the library raises for certificates that it cannot read, besides ValueError.
_UNREADABLE = (x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, UnsupportedAlgorithm)


class ClientCertificate(NamedTuple):
    """A certificate that the authority signed for clients."""

    name: str  # the last CN; empty: it names nobody
    groups: tuple[str, ...]
    uid: str
    not_before: datetime
    not_after: datetime


def read_client_certificate(der: bytes, authority: bytes) -> ClientCertificate | None:
    """The certificate's contents; None when another authority signed it, or it is not for clients or not readable."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        if not is_signed_by(certificate, _load(authority)) or not _is_for_clients(certificate):
            return None
        if any(extension.critical and _is_unknown(extension) for extension in certificate.extensions):
            return None
        names, groups, uids = (
            tuple(str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid))
            for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, _UID)
        )
    except (ValueError, *_UNREADABLE):
        return None
    if len(uids) > 1 or uids == ("",):
        return None
    period = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    return ClientCertificate(names[-1] if names else "", groups, uids[0] if uids else "", *period)


@lru_cache(maxsize=4)
def _load(authority: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority)


def _is_unknown(extension: x509.Extension[x509.ExtensionType]) -> bool:
    return isinstance(extension.value, x509.UnrecognizedExtension)


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages
