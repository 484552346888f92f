"""CertificateSigningRequest: validation of requests, of approvals and of issued certificates."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.quoting import quote
from torchyard.api.status_subresource import StatusSubresourceStrategy
from torchyard.api.times import to_rfc3339

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING_SIGNER = "kubernetes.io/kubelet-serving"
_LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_FINAL = (APPROVED, DENIED, FAILED)
_CONDITIONS, _CERTIFICATE = "status.conditions", "status.certificate"
_STATUSES = ("False", "True", "Unknown")
USAGES = (
    *("any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment"),
    *("decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel"),
    *("ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime"),
    *("server auth", "signing", "timestamping"),
)
_MAX_DOMAIN = 253
_MAX_SIGNER = _MAX_DOMAIN + (253 + 63 + 1) + 1
_SHORTEST_SECONDS = 600
_search_begin = re.compile(rb"-----BEGIN ([^-\n]*)-----[ \t]*\r?\n").search


class CertificateSigningRequestStrategy(StatusSubresourceStrategy):
    generation_fields = None

    def prepare_update(self, new: Object, old: Object) -> None:
        # the requester and the request never change
        super().prepare_update(new, old)
        new["spec"] = old.get("spec")

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        spec = obj.get("spec") or {}
        _validate_request(spec.get("request") or "", errs)
        _validate_usages(spec.get("usages") or [], errs)
        _validate_signer(spec.get("signerName") or "", errs)
        seconds = spec.get("expirationSeconds")
        if seconds is not None and seconds < _SHORTEST_SECONDS:
            detail = f"may not specify a duration less than {_SHORTEST_SECONDS} seconds (10 minutes)"
            errs.append(field_errors.invalid("spec.expirationSeconds", seconds, detail))
        return errs

    def selectable(self, obj: Object) -> dict[str, str]:
        return {"spec.signerName": (obj.get("spec") or {}).get("signerName") or ""}


class _PemBlock(NamedTuple):
    text: bytes
    label: bytes
    body: bytes


def _pem_blocks(content: bytes) -> Iterator[_PemBlock]:
    """The PEM blocks, in one pass. A block without an end is the last: what follows could be its content."""
    at = 0
    while (begin := _search_begin(content, at)) is not None:
        mark = b"-----END " + begin[1] + b"-----"
        end = content.find(mark, begin.end())
        if end < 0:
            return
        at = end + len(mark)
        body = content[begin.end() : end]
        yield _PemBlock(b"-----BEGIN " + begin[1] + b"-----\n" + body + mark, begin[1], body)


def read_request(encoded: str) -> bytes | None:
    """The first PEM block of a request in base64, as Go's pem.Decode; None if it is something else.

    Validation, admission and the signers all read the request with this, so that none of them judges another block.
    """
    try:
        content = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return None
    first = next(_pem_blocks(content), None)
    return first.text if first is not None and first.label == b"CERTIFICATE REQUEST" else None


def _validate_request(encoded: str, errs: list[FieldError]) -> None:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    block = read_request(encoded)
    if block is None:
        detail = "PEM block type must be CERTIFICATE REQUEST"
        errs.append(field_errors.invalid("spec.request", encoded, detail))
        return
    try:
        if not x509.load_pem_x509_csr(block).is_signature_valid:
            errs.append(field_errors.invalid("spec.request", encoded, "x509: the signature of the request is wrong"))
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        errs.append(field_errors.invalid("spec.request", encoded, "x509: malformed certificate request"))


def _validate_usages(usages: list[str], errs: list[FieldError]) -> None:
    if not usages:
        errs.append(field_errors.required("spec.usages"))
    for index, (usage, repeated) in enumerate(zip(usages, checks.repetitions(usages), strict=True)):
        field = f"spec.usages[{index}]"
        if usage not in USAGES:
            errs.append(field_errors.not_supported(field, usage, USAGES))
        if repeated:
            errs.append(field_errors.duplicate(field, usage))


def _validate_signer(signer: str, errs: list[FieldError]) -> None:
    field = "spec.signerName"
    parts = signer.split("/")
    if not signer:
        errs.append(field_errors.required(field))
        return
    if signer == _LEGACY_SIGNER:
        detail = "the legacy signerName is not allowed via this API version"
        errs.append(field_errors.invalid(field, signer, detail))
        return
    if len(parts) != 2:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        errs.append(field_errors.invalid(field, signer, detail))
        return
    domain, path = parts
    if len(domain) > _MAX_DOMAIN:
        errs.append(field_errors.too_long(field, _MAX_DOMAIN))
    for label in domain.split("."):
        if problems := names.label_problems(label):
            details = [f"validating label {quote(label)}: {problem}" for problem in problems]
            errs += [field_errors.invalid(field, domain, detail) for detail in details]
            break
    if "." not in domain:
        detail = "should be a domain with at least two segments separated by dots"
        errs.append(field_errors.invalid(field, domain, detail))
    for label in path.split("."):
        if problems := names.subdomain_problems(label):
            details = [f"validating label {quote(label)}: {problem}" for problem in problems]
            errs += [field_errors.invalid(field, path, detail) for detail in details]
            break
    if len(signer) > _MAX_SIGNER:
        errs.append(field_errors.too_long(field, _MAX_SIGNER))


def with_approval(old: Object, new: Object, now: datetime) -> Object:
    """The request with the conditions of an approval. A certificate comes only from a signer."""
    status = {name: part for name, part in (new.get("status") or {}).items() if name != "certificate"}
    if "certificate" in (old.get("status") or {}):
        status["certificate"] = old["status"]["certificate"]
    return with_status(old, {**new, "status": status}, now)


def with_status(old: Object, new: Object, now: datetime) -> Object:
    """The request with another status, with the times that its conditions lack."""
    status = dict(new.get("status") or {})
    before = {condition.get("type"): condition for condition in (old.get("status") or {}).get("conditions") or ()}
    if "conditions" in status:
        status["conditions"] = [
            _with_times(condition, before.get(condition.get("type")), to_rfc3339(now))
            for condition in status["conditions"] or ()
        ]
    return {**new, "spec": old["spec"], "status": status}


def _with_times(condition: Object, before: Object | None, now: str) -> Object:
    condition = dict(condition)
    condition["lastUpdateTime"] = condition.get("lastUpdateTime") or now
    if not condition.get("lastTransitionTime"):
        is_same = before is not None and before.get("status") == condition.get("status")
        earlier = before.get("lastTransitionTime") if before is not None and is_same else None
        condition["lastTransitionTime"] = earlier or now
    return condition


def approval_errors(new: Object, old: Object) -> list[FieldError]:
    """The errors of an approval or a denial."""
    return _changed_conditions(new, old, may_decide=True) + _condition_errors(_conditions(new))


def status_errors(new: Object, old: Object) -> list[FieldError]:
    """The errors of a status, which signers write."""
    errs = _changed_conditions(new, old, may_decide=False)
    certificate, before = (_certificate(request) for request in (new, old))
    if before and certificate != before:
        detail = "updates may not modify existing certificate content"
        errs.append(field_errors.forbidden(_CERTIFICATE, detail))
    errs += _condition_errors(_conditions(new))
    if certificate and certificate != before:
        errs += [field_errors.invalid(_CERTIFICATE, "<certificate data>", detail) for detail in _problems(certificate)]
    return errs


def _changed_conditions(new: Object, old: Object, *, may_decide: bool) -> list[FieldError]:
    """Final conditions stay; only an approval adds Approved and Denied."""
    types, before = ({condition.get("type") for condition in _conditions(request)} for request in (new, old))
    removed = [final for final in _FINAL if final in before - types]
    added = [] if may_decide else [final for final in (APPROVED, DENIED) if final in types - before]
    return [
        field_errors.forbidden(_CONDITIONS, f"updates may not {verb} a condition of type {quote(final)}")
        for verb, finals in (("remove", removed), ("add", added))
        for final in finals
    ]


def _condition_errors(conditions: list[Object]) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        field = f"{_CONDITIONS}[{index}]"
        type, status = condition.get("type") or "", condition.get("status") or ""
        if not type:
            errs.append(field_errors.required(f"{field}.type"))
        allowed = ("True",) if type in _FINAL else _STATUSES
        if not status:
            errs.append(field_errors.required(f"{field}.status"))
        elif status not in allowed:
            errs.append(field_errors.not_supported(f"{field}.status", status, allowed))
        if type in seen:
            errs.append(field_errors.duplicate(f"{field}.type", type))
        elif type in (APPROVED, DENIED) and seen & {APPROVED, DENIED}:
            detail = "Approved and Denied conditions are mutually exclusive"
            errs.append(field_errors.invalid(_CONDITIONS, type, detail))
        seen.add(type)
    return errs


def _problems(encoded: str) -> Iterator[str]:
    """What is wrong with an issued certificate, a sequence of PEM blocks; the first problem only."""
    from cryptography import x509

    try:
        blocks = list(_pem_blocks(base64.b64decode(encoded)))
    except (binascii.Error, ValueError):
        blocks = []
    for block in blocks:
        if block.label != b"CERTIFICATE":
            yield f"only CERTIFICATE PEM blocks are allowed, found {quote(block.label.decode(errors='replace'))}"
            return
        if b":" in block.body:
            yield "no PEM block headers are permitted"
            return
        try:
            x509.load_pem_x509_certificate(block.text)
        except (ValueError, x509.InvalidVersion):
            yield "x509: malformed certificate"
            return
    if not blocks:
        yield "must contain at least one CERTIFICATE PEM block"


def _conditions(request: Object) -> list[Object]:
    return (request.get("status") or {}).get("conditions") or []


def _certificate(request: Object) -> str:
    return (request.get("status") or {}).get("certificate") or ""
