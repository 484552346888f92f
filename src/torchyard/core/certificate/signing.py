"""The rules of the signers for client certificates and for the certificates of kubelets."""

from __future__ import annotations

from datetime import datetime, timedelta

from torchyard.api.access.certificate_requests import (
    CLIENT_SIGNER,
    FAILED,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
)
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.core.certificate.request import CertificateRequest

SIGNERS = frozenset({CLIENT_SIGNER, KUBELET_CLIENT_SIGNER, KUBELET_SERVING_SIGNER})
LONGEST = timedelta(days=365)
_SHORTEST = timedelta(minutes=10)
# A certificate is valid some time before it is issued, because clocks differ. A short one is not shortened by it.
_BACKDATE = timedelta(minutes=5)
_SHORT = timedelta(hours=8)
_MASTERS = "system:masters"
_CLIENT, _SERVER = "client auth", "server auth"
_SIGNATURE, _ENCIPHERMENT = "digital signature", "key encipherment"


def refusal(signer: str, request: CertificateRequest, usages: list[str]) -> str:
    """Why the signer does not issue the certificate; empty if it does."""
    if signer == CLIENT_SIGNER:
        return _client_refusal(request, usages)
    usage = _SERVER if signer == KUBELET_SERVING_SIGNER else _CLIENT
    refusal = _node_refusal(request) or _alternative_names_refusal(signer, request)
    if not refusal and set(usages) not in ({_SIGNATURE, usage}, {_SIGNATURE, _ENCIPHERMENT, usage}):
        refusal = f"usages did not match [{' '.join(sorted((_SIGNATURE, _ENCIPHERMENT, usage)))}]"
    return refusal


def _client_refusal(request: CertificateRequest, usages: list[str]) -> str:
    if _MASTERS in request.organizations:  # admission has refused it: a signer does not depend on that
        return f"subject organization {_MASTERS} is not allowed"
    other = next((usage for usage in usages if usage not in (_SIGNATURE, _ENCIPHERMENT, _CLIENT)), None)
    if other is not None:
        return f"invalid usage for client certificate: {other}"
    return "" if _CLIENT in usages else f"missing required usage for client certificate: {_CLIENT}"


def _node_refusal(request: CertificateRequest) -> str:
    if request.organizations != ("system:nodes",):
        return "subject organization is not system:nodes"
    if len(request.common_names) > 1:
        return "subject has more than one common name"
    is_serving_or_client = request.common_name.startswith("system:node:")
    return "" if is_serving_or_client else "subject common name does not begin with system:node:"


def _alternative_names_refusal(signer: str, request: CertificateRequest) -> str:
    forbidden = [("Email", request.emails), ("URI", request.uris)]
    if signer == KUBELET_CLIENT_SIGNER:
        forbidden = [("DNS", request.dns_names), ("IP", request.ip_addresses), *forbidden]
    elif not request.dns_names and not request.ip_addresses:
        return "DNS or IP subjectAltName is required"
    return next((f"{kind} subjectAltNames are not allowed" for kind, values in forbidden if values), "")


def validity(csr: Object, now: datetime) -> tuple[datetime, datetime]:
    """From when until when the certificate of a request is valid."""
    seconds = csr["spec"].get("expirationSeconds")
    life = LONGEST if seconds is None else min(max(timedelta(seconds=seconds), _SHORTEST), LONGEST)
    return now - _BACKDATE, now + life - (_BACKDATE if life > _SHORT else timedelta())


def with_failure(csr: Object, message: str, now: datetime) -> Object:
    """The request with the condition that it cannot be signed."""
    at = to_rfc3339(now)
    failed = {
        **{"type": FAILED, "status": "True", "reason": "SignerValidationFailure", "message": message},
        **{"lastUpdateTime": at, "lastTransitionTime": at},
    }
    status = csr.get("status") or {}
    return {**csr, "status": {**status, "conditions": [*(status.get("conditions") or ()), failed]}}
