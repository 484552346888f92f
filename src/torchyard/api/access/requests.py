"""Strategies of flow control and of certificate requests.

The server stores these kinds for clients that use them but does not act on them, so only their form is validated.
"""

from __future__ import annotations

import base64
import binascii

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import StatusSubresourceStrategy


class FlowSchemaStrategy(StatusSubresourceStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("matchingPrecedence"):
            spec["matchingPrecedence"] = 1000

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        spec = obj["spec"]
        precedence = spec["matchingPrecedence"]
        if precedence <= 0:
            errs.append(field_errors.invalid("spec.matchingPrecedence", precedence, "must be a positive value"))
        if precedence > 10000:
            detail = "must not be greater than 10000"
            errs.append(field_errors.invalid("spec.matchingPrecedence", precedence, detail))
        if not (spec.get("priorityLevelConfiguration") or {}).get("name"):
            detail = "must reference a priority level"
            errs.append(field_errors.required("spec.priorityLevelConfiguration.name", detail))
        return errs


class PriorityLevelConfigurationStrategy(StatusSubresourceStrategy):
    def default(self, obj: Object) -> None:
        limited = obj.setdefault("spec", {}).get("limited")
        if limited is not None:
            for name, value in (("nominalConcurrencyShares", 30), ("lendablePercent", 0)):
                if limited.get(name) is None:
                    limited[name] = value
            queuing = (limited.get("limitResponse") or {}).get("queuing")
            if queuing is not None:
                for name, value in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
                    if not queuing.get(name):
                        queuing[name] = value

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        spec = obj["spec"]
        kind = spec.get("type") or ""
        checks.optional_enum(kind, ("Exempt", "Limited"), "spec.type", errs)
        if kind == "Limited":
            if spec.get("limited") is None:
                errs.append(field_errors.required("spec.limited", "must not be empty when type is Limited"))
            else:
                response = (spec["limited"].get("limitResponse") or {}).get("type") or ""
                checks.optional_enum(response, ("Queue", "Reject"), "spec.limited.limitResponse.type", errs)
        return errs


class CertificateSigningRequestStrategy(StatusSubresourceStrategy):
    generation_fields = None

    def prepare_update(self, new: Object, old: Object) -> None:
        # the requester and the request never change
        super().prepare_update(new, old)
        new["spec"] = old.get("spec")

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        spec = obj.get("spec") or {}
        signer, request = spec.get("signerName") or "", spec.get("request") or ""
        if not _is_signing_request(request):
            detail = "PEM block type must be CERTIFICATE REQUEST"
            errs.append(field_errors.invalid("spec.request", request, detail))
        if not spec.get("usages"):
            errs.append(field_errors.required("spec.usages"))
        if not signer:
            errs.append(field_errors.required("spec.signerName"))
        elif "/" not in signer:
            detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            errs.append(field_errors.invalid("spec.signerName", signer, detail))
        else:
            domain = signer.partition("/")[0]
            checks.report_problems(names.subdomain_problems(domain), "spec.signerName", domain, errs)
        seconds = spec.get("expirationSeconds")
        if seconds is not None and seconds < 600:
            detail = "may not specify a duration less than 600 seconds (10 minutes)"
            errs.append(field_errors.invalid("spec.expirationSeconds", seconds, detail))
        return errs

    def selectable(self, obj: Object) -> dict[str, str]:
        return {"spec.signerName": (obj.get("spec") or {}).get("signerName") or ""}


def _is_signing_request(encoded: str) -> bool:
    try:
        return b"-----BEGIN CERTIFICATE REQUEST-----" in base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return False
