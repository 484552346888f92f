"""Webhook configurations and admission policies as kinds: what they must say beyond what the ground checks.

Whether an expression compiles can only be told with the language at hand, which the ground does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torchyard.api import checks, faults, names, selectors
from torchyard.api.access.webhooks import (
    MutatingWebhookBehaviour,
    ValidatingWebhookBehaviour,
    check_conditions,
    check_rule,
)
from torchyard.api.behaviour import Behaviour, Object
from torchyard.api.faults import Fault
from torchyard.api.resources import Resource

GROUP = "admissionregistration.k8s.io"
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_SOMETHING = "validations or auditAnnotations must contain at least one item"


def with_expressions(resources: Iterable[Resource]) -> Iterable[Resource]:
    """The resources, with those that hold expressions having them checked."""
    for one in resources:
        behaviour = _BEHAVIOURS.get(one.plural) if one.group == GROUP else None
        yield replace(one, behaviour=behaviour) if behaviour else one


class _ValidatingWebhooks(ValidatingWebhookBehaviour):
    def validate(self, obj: Object) -> list[Fault]:
        return super().validate(obj) + _webhook_faults(obj)


class _MutatingWebhooks(MutatingWebhookBehaviour):
    def validate(self, obj: Object) -> list[Fault]:
        return super().validate(obj) + _webhook_faults(obj)


class PolicyBehaviour(Behaviour):
    unconditional_update = False

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec["failurePolicy"] = spec.get("failurePolicy") or "Fail"
        _default_constraints(spec.get("matchConstraints"))

    def prepare_create(self, obj: Object) -> None:
        obj.pop("status", None)

    def prepare_update(self, new: Object, old: Object) -> None:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]

    def prepare_status(self, new: Object, old: Object) -> None:
        new["spec"] = old["spec"]

    def validate(self, obj: Object) -> list[Fault]:
        return _policy_faults(obj)


class BindingBehaviour(Behaviour):
    unconditional_update = False

    def default(self, obj: Object) -> None:
        _default_constraints((obj.get("spec") or {}).get("matchResources"))

    def validate(self, obj: Object) -> list[Fault]:
        return _binding_faults(obj.get("spec") or {})


_BEHAVIOURS: dict[str, Behaviour] = {
    "validatingwebhookconfigurations": _ValidatingWebhooks(),
    "mutatingwebhookconfigurations": _MutatingWebhooks(),
    "validatingadmissionpolicies": PolicyBehaviour(),
    "validatingadmissionpolicybindings": BindingBehaviour(),
}


def _default_constraints(constraints: Object | None) -> None:
    if constraints is None:
        return
    constraints["matchPolicy"] = constraints.get("matchPolicy") or "Equivalent"
    for name in ("namespaceSelector", "objectSelector"):
        if constraints.get(name) is None:
            constraints[name] = {}
    for rule in (*(constraints.get("resourceRules") or ()), *(constraints.get("excludeResourceRules") or ())):
        rule["scope"] = rule.get("scope") or "*"


def _webhook_faults(configuration: Object) -> list[Fault]:
    conditions = [
        (condition, f"webhooks[{index}].matchConditions[{place}].expression")
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        for place, condition in enumerate(webhook.get("matchConditions") or ())
    ]
    if not conditions:
        return []
    from torchyard.apiserver.access.webhooks.evaluation import condition_faults

    return [
        fault for condition, field in conditions for fault in condition_faults(condition.get("expression") or "", field)
    ]


def _constraint_faults(constraints: Object, at: str, *, rules_required: bool) -> list[Fault]:
    found: list[Fault] = []
    checks.choice(constraints.get("matchPolicy"), ("Equivalent", "Exact"), f"{at}.matchPolicy", found)
    for name in ("namespaceSelector", "objectSelector"):
        found += selectors.validate_object(constraints.get(name), f"{at}.{name}")
    if rules_required and not constraints.get("resourceRules"):
        found.append(faults.required(f"{at}.resourceRules"))
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(constraints.get(name) or ()):
            check_rule(rule, f"{at}.{name}[{index}]", found)
    return found


def _policy_faults(policy: Object) -> list[Fault]:
    from torchyard.apiserver.access.webhooks.evaluation import policy_faults

    spec = policy.get("spec") or {}
    found: list[Fault] = []
    checks.choice(spec.get("failurePolicy"), ("Fail", "Ignore"), "spec.failurePolicy", found)
    kind = spec.get("paramKind")
    if kind is not None:
        found += [faults.required(f"spec.paramKind.{name}") for name in ("apiVersion", "kind") if not kind.get(name)]
    constraints = spec.get("matchConstraints")
    if constraints is None:
        found.append(faults.required("spec.matchConstraints"))
    else:
        found += _constraint_faults(constraints, "spec.matchConstraints", rules_required=True)
    check_conditions(spec.get("matchConditions") or [], "spec.matchConditions", found)
    for index, variable in enumerate(spec.get("variables") or ()):
        found += _variable_faults(variable, f"spec.variables[{index}]")
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        found += [faults.required(f"spec.{name}", _SOMETHING) for name in ("validations", "auditAnnotations")]
    for index, validation in enumerate(spec.get("validations") or ()):
        found += _validation_faults(validation, f"spec.validations[{index}]")
    name = (policy.get("metadata") or {}).get("name") or ""
    for index, annotation in enumerate(spec.get("auditAnnotations") or ()):
        found += _annotation_faults(annotation, f"spec.auditAnnotations[{index}]", name)
    return found + policy_faults(policy)


def _variable_faults(variable: Object, at: str) -> list[Fault]:
    found: list[Fault] = []
    name = variable.get("name") or ""
    if not name:
        found.append(faults.required(f"{at}.name", "name is not specified"))
    elif not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        found.append(faults.invalid(f"{at}.name", name, "must be a valid CEL identifier"))
    if not (variable.get("expression") or "").strip():
        found.append(faults.required(f"{at}.expression", "expression is not specified"))
    return found


def _validation_faults(validation: Object, at: str) -> list[Fault]:
    found: list[Fault] = []
    if not (validation.get("expression") or "").strip():
        found.append(faults.required(f"{at}.expression", "expression is not specified"))
    for name in ("messageExpression", "message"):
        said = validation.get(name) or ""
        if said and not said.strip():
            found.append(faults.invalid(f"{at}.{name}", said, "must be non-empty if specified"))
        elif name == "message" and "\n" in said.strip():
            found.append(faults.invalid(f"{at}.{name}", said, "must not contain line breaks"))
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        found.append(faults.not_supported(f"{at}.reason", reason, _REASONS))
    return found


def _annotation_faults(annotation: Object, at: str, policy: str) -> list[Fault]:
    found: list[Fault] = []
    key = f"{policy}/{annotation.get('key') or ''}"
    checks.told(names.qualified_name_problems(key), f"{at}.key", key, found)
    if not (annotation.get("valueExpression") or "").strip():
        found.append(faults.required(f"{at}.valueExpression", "valueExpression is not specified"))
    return found


def _binding_faults(spec: Object) -> list[Fault]:
    found: list[Fault] = []
    policy, actions = spec.get("policyName") or "", spec.get("validationActions") or []
    if not policy:
        found.append(faults.required("spec.policyName"))
    else:
        checks.told(names.subdomain_problems(policy), "spec.policyName", policy, found)
    if spec.get("paramRef") is not None:
        found += _reference_faults(spec["paramRef"], "spec.paramRef")
    if spec.get("matchResources") is not None:
        found += _constraint_faults(spec["matchResources"], "spec.matchResources", rules_required=False)
    return found + _action_faults(actions, "spec.validationActions")


def _reference_faults(reference: dict[str, Any], at: str) -> list[Fault]:
    found: list[Fault] = []
    name, selector = reference.get("name") or "", reference.get("selector")
    if name and selector is not None:
        both = "name and selector are mutually exclusive"
        found += [faults.forbidden(f"{at}.{one}", both) for one in ("name", "selector")]
    elif not name and selector is None:
        found.append(faults.required(at, "one of name or selector must be specified"))
    missing = reference.get("parameterNotFoundAction")
    if missing is None:
        found.append(faults.required(f"{at}.parameterNotFoundAction"))
    elif missing not in ("Deny", "Allow"):
        found.append(faults.not_supported(f"{at}.parameterNotFoundAction", missing, ("Deny", "Allow")))
    return found


def _action_faults(actions: list[str], at: str) -> list[Fault]:
    if not actions:
        return [faults.required(at, "at least one validation action is required")]
    found: list[Fault] = []
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            found.append(faults.not_supported(f"{at}[{index}]", action, _ACTIONS))
        if action in actions[:index]:
            found.append(faults.duplicate(f"{at}[{index}]", action))
    if "Deny" in actions and "Warn" in actions:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response"
            " and headers serves no purpose)"
        )
        found.append(faults.invalid(at, actions, detail))
    return found
