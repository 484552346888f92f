"""When a CertificateSigningRequest is deleted: an hour after it was decided, or a day after it was made."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta

from torchyard.api.access.certificate_requests import APPROVED, DENIED, FAILED
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339

_PENDING = timedelta(hours=24)
_DECIDED = timedelta(hours=1)


def seconds_left(csr: Object, now: datetime) -> float | None:
    """The seconds until the request is deleted; None if it stays, as an approved one that no signer knows."""
    deadlines = list(_deadlines(csr))
    return (min(deadlines) - now).total_seconds() if deadlines else None


def _deadlines(csr: Object) -> list[datetime]:
    status = csr.get("status") or {}
    conditions, certificate = status.get("conditions") or [], status.get("certificate")
    if not conditions and not certificate:
        return [parse_rfc3339(csr["metadata"]["creationTimestamp"]) + _PENDING]
    final = {DENIED, FAILED} | ({APPROVED} if certificate else set())
    deadlines = [
        parse_rfc3339(condition["lastUpdateTime"]) + _DECIDED
        for condition in conditions
        if condition.get("type") in final and condition.get("status") == "True" and condition.get("lastUpdateTime")
    ]
    return [*deadlines, *([_expiry(certificate)] if certificate else ())]


def _expiry(encoded: str) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(base64.b64decode(encoded)).not_valid_after_utc
