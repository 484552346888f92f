"""CertificateSigningRequests: who requested, and who may approve and sign.

CertificateApproval, CertificateSigning and CertificateSubjectRestriction, and the requester that upstream's registry
sets. A signer outside the plane trusts these.
"""

from __future__ import annotations

from torchyard.api.access.certificate_requests import CLIENT_SIGNER, read_request
from torchyard.api.quoting import quote
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes
from torchyard.apiserver.access.authentication import MASTERS
from torchyard.apiserver.access.rbac import Authorizer, AuthorizerAttributes

GROUP = "certificates.k8s.io"
RESOURCE = "certificatesigningrequests"
_REQUESTER_FIELDS = ("username", "uid", "groups", "extra")


def set_requester(attributes: AdmissionAttributes) -> None:
    """A new request names the user who made it, whatever the user wrote there."""
    if not attributes.is_for(RESOURCE, GROUP):
        return
    spec = attributes.new.setdefault("spec", {})
    for name in _REQUESTER_FIELDS:
        spec.pop(name, None)
    spec |= attributes.user.info()


def check_approval(attributes: AdmissionAttributes, authorizer: Authorizer) -> None:
    """An approval or denial needs the verb `approve` on the signer, a certificate the verb `sign`."""
    if attributes.group != GROUP or attributes.operation != "UPDATE" or attributes.old is None:
        return
    new, old = attributes.new.get("status") or {}, attributes.old.get("status") or {}
    signer = (attributes.old.get("spec") or {}).get("signerName") or ""
    if attributes.subresource == "approval":
        verb = "approve"
    elif attributes.subresource == "status" and any(new.get(name) != old.get(name) for name in _SIGNED_FIELDS):
        verb = "sign"
    else:
        return
    if not _is_allowed(attributes, authorizer, verb, signer):
        raise attributes.forbidden_error(f"user not permitted to {verb} requests with signerName {quote(signer)}")


_SIGNED_FIELDS = ("certificate", "conditions")


def _is_allowed(attributes: AdmissionAttributes, authorizer: Authorizer, verb: str, signer: str) -> bool:
    """Whether the user may do this for the signer, or for every signer of its domain."""
    return any(
        authorizer.authorize(attributes.user, AuthorizerAttributes(verb, GROUP, "signers", name=name)).allowed
        for name in (signer, f"{signer.partition('/')[0]}/*")
    )


def check_subject(attributes: AdmissionAttributes) -> None:
    """A client certificate cannot put its owner into system:masters."""
    if not attributes.is_for(RESOURCE, GROUP):
        return
    spec = attributes.new.get("spec") or {}
    if spec.get("signerName") != CLIENT_SIGNER:
        return
    try:
        organizations = _organizations(spec.get("request") or "")
    except ValueError as error:
        raise attributes.forbidden_error(f"failed to parse CSR: {error}") from None
    if MASTERS in organizations:
        raise attributes.forbidden_error(f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")


def _organizations(encoded: str) -> list[str]:
    """The groups that a request asks for. Raises ValueError if it cannot be read."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    block = read_request(encoded)
    if block is None:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        subject = x509.load_pem_x509_csr(block).subject
    except x509.InvalidVersion as error:
        raise ValueError(str(error)) from None
    return [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
