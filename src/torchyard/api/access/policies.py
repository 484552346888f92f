"""Rules about requests: admission policies, flow control, certificate requests.

These kinds are kept for clients that bring them along; nothing here enforces them, so they are checked for form only.
"""

from __future__ import annotations

import base64
import binascii

from torchyard.api import checks, faults, names
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault
from torchyard.api.stateful import StatefulBehaviour

_ACTIONS = ("Audit", "Deny", "Warn")
_BOTH = (
    "must not contain both Deny and Warn "
    "(repeating the same validation failure information in the API response and headers serves no purpose)"
)


def default_policy(policy: Object) -> None:
    spec = policy.setdefault("spec", {})
    if spec.get("failurePolicy") is None:
        spec["failurePolicy"] = "Fail"
    match = spec.get("matchConstraints")
    if match is None:
        return
    for name in ("namespaceSelector", "objectSelector"):
        if match.get(name) is None:
            match[name] = {}
    if match.get("matchPolicy") is None:
        match["matchPolicy"] = "Equivalent"
    for kind in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(kind) or ():
            if rule.get("scope") is None:
                rule["scope"] = "*"


def validate_policy(policy: Object) -> list[Fault]:
    found: list[Fault] = []
    spec = policy["spec"]
    match = spec.get("matchConstraints")
    checks.choice(spec.get("failurePolicy"), ("Fail", "Ignore"), "spec.failurePolicy", found)
    for name in ("apiVersion", "kind"):
        if spec.get("paramKind") is not None and not spec["paramKind"].get(name):
            found.append(faults.required(f"spec.paramKind.{name}"))
    if match is None:
        found.append(faults.required("spec.matchConstraints"))
    elif not match.get("resourceRules"):
        found.append(faults.required("spec.matchConstraints.resourceRules"))
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        detail = "validations or auditAnnotations must contain at least one item"
        found += [faults.required(f"spec.{name}", detail) for name in ("validations", "auditAnnotations")]
    for index, rule in enumerate(spec.get("validations") or ()):
        if not (rule.get("expression") or "").strip():
            found.append(faults.required(f"spec.validations[{index}].expression", "expression is not specified"))
        reasons = ("Forbidden", "Invalid", "RequestEntityTooLarge")
        checks.choice(rule.get("reason"), reasons, f"spec.validations[{index}].reason", found)
    return found


def validate_policy_binding(binding: Object) -> list[Fault]:
    found: list[Fault] = []
    spec = binding.get("spec") or {}
    actions = spec.get("validationActions") or []
    if not spec.get("policyName"):
        found.append(faults.required("spec.policyName"))
    if not actions:
        found.append(faults.required("spec.validationActions", "at least one validation action is required"))
    for index, action in enumerate(actions):
        checks.choice(action, _ACTIONS, f"spec.validationActions[{index}]", found)
        if action in actions[:index]:
            found.append(faults.duplicate(f"spec.validationActions[{index}]", action))
    if {"Deny", "Warn"} <= set(actions):
        found.append(faults.invalid("spec.validationActions", actions, _BOTH))
    return found


class AdmissionPolicyBehaviour(StatefulBehaviour):
    unconditional_update = False

    def default(self, obj: Object) -> None:
        default_policy(obj)

    def validate(self, obj: Object) -> list[Fault]:
        return validate_policy(obj)


class AdmissionPolicyBindingBehaviour(StatefulBehaviour):
    unconditional_update = False

    def prepare_create(self, obj: Object) -> None:
        """A binding has no status."""

    def validate(self, obj: Object) -> list[Fault]:
        return validate_policy_binding(obj)


class FlowSchemaBehaviour(StatefulBehaviour):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("matchingPrecedence"):
            spec["matchingPrecedence"] = 1000

    def validate(self, obj: Object) -> list[Fault]:
        found: list[Fault] = []
        spec = obj["spec"]
        precedence = spec["matchingPrecedence"]
        if precedence <= 0:
            found.append(faults.invalid("spec.matchingPrecedence", precedence, "must be a positive value"))
        if precedence > 10000:
            detail = "must not be greater than 10000"
            found.append(faults.invalid("spec.matchingPrecedence", precedence, detail))
        if not (spec.get("priorityLevelConfiguration") or {}).get("name"):
            detail = "must reference a priority level"
            found.append(faults.required("spec.priorityLevelConfiguration.name", detail))
        return found


class PriorityLevelBehaviour(StatefulBehaviour):
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

    def validate(self, obj: Object) -> list[Fault]:
        found: list[Fault] = []
        spec = obj["spec"]
        kind = spec.get("type") or ""
        checks.choice(kind, ("Exempt", "Limited"), "spec.type", found)
        if kind == "Limited":
            if spec.get("limited") is None:
                found.append(faults.required("spec.limited", "must not be empty when type is Limited"))
            else:
                response = (spec["limited"].get("limitResponse") or {}).get("type") or ""
                checks.choice(response, ("Queue", "Reject"), "spec.limited.limitResponse.type", found)
        return found


class SigningRequestBehaviour(StatefulBehaviour):
    generation_fields = None

    def prepare_update(self, new: Object, old: Object) -> None:
        # who asks for what never changes
        super().prepare_update(new, old)
        new["spec"] = old.get("spec")

    def validate(self, obj: Object) -> list[Fault]:
        found: list[Fault] = []
        spec = obj.get("spec") or {}
        signer, request = spec.get("signerName") or "", spec.get("request") or ""
        if not _is_signing_request(request):
            detail = "PEM block type must be CERTIFICATE REQUEST"
            found.append(faults.invalid("spec.request", request, detail))
        if not spec.get("usages"):
            found.append(faults.required("spec.usages"))
        if not signer:
            found.append(faults.required("spec.signerName"))
        elif "/" not in signer:
            detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            found.append(faults.invalid("spec.signerName", signer, detail))
        else:
            domain = signer.partition("/")[0]
            checks.told(names.subdomain_problems(domain), "spec.signerName", domain, found)
        seconds = spec.get("expirationSeconds")
        if seconds is not None and seconds < 600:
            detail = "may not specify a duration less than 600 seconds (10 minutes)"
            found.append(faults.invalid("spec.expirationSeconds", seconds, detail))
        return found

    def selectable(self, obj: Object) -> dict[str, str]:
        return {"spec.signerName": (obj.get("spec") or {}).get("signerName") or ""}


def _is_signing_request(encoded: str) -> bool:
    try:
        return b"-----BEGIN CERTIFICATE REQUEST-----" in base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return False
