"""What a CertificateSigningRequest asks for, and its conditions."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.access.certificate_requests import APPROVED, DENIED, FAILED, read_request
from torchyard.api.objects import Object


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """The decoded PKCS #10 request."""

    pem: bytes
    common_name: str  # the last, as for the owner of a client certificate
    organizations: tuple[str, ...]
    common_names: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


def decode_request(csr: Object) -> CertificateRequest:
    """Decode `spec.request`, which the server has validated."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    pem = read_request(csr["spec"]["request"])
    if pem is None:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    request = x509.load_pem_x509_csr(pem)

    def names(oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(attribute.value) for attribute in request.subject.get_attributes_for_oid(oid))

    common_names = names(NameOID.COMMON_NAME)
    try:
        alternatives = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        alternatives = x509.SubjectAlternativeName([])
    return CertificateRequest(
        pem,
        common_name=common_names[-1] if common_names else "",
        organizations=names(NameOID.ORGANIZATION_NAME),
        common_names=common_names,
        dns_names=tuple(alternatives.get_values_for_type(x509.DNSName)),
        ip_addresses=tuple(str(address) for address in alternatives.get_values_for_type(x509.IPAddress)),
        emails=tuple(alternatives.get_values_for_type(x509.RFC822Name)),
        uris=tuple(alternatives.get_values_for_type(x509.UniformResourceIdentifier)),
    )


def has_condition(csr: Object, type: str) -> bool:
    conditions = (csr.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == type and condition.get("status") == "True" for condition in conditions)


def is_decided(csr: Object) -> bool:
    return has_condition(csr, APPROVED) or has_condition(csr, DENIED)


def is_to_be_signed(csr: Object) -> bool:
    """Whether the request is approved, and neither signed nor failed."""
    is_issued = bool((csr.get("status") or {}).get("certificate"))
    return has_condition(csr, APPROVED) and not is_issued and not has_condition(csr, FAILED)
