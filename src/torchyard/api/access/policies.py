"""What is valid in admission policies and their bindings. Whether an expression compiles is told by who runs it."""

from __future__ import annotations

import re

from torchyard.api import checks, faults, names, selectors
from torchyard.api.access.webhooks import check_conditions, check_rule
from torchyard.api.behaviour import Behaviour, Object
from torchyard.api.faults import Fault
from torchyard.api.stateful import StatefulBehaviour

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_MISSING = ("Deny", "Allow")
_SOMETHING = "validations or auditAnnotations must contain at least one item"
_BOTH_ACTIONS = (
    "must not contain both Deny and Warn "
    "(repeating the same validation failure information in the API response and headers serves no purpose)"
)
_is_identifier = re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch


class AdmissionPolicyBehaviour(StatefulBehaviour):
    qualified_finalizers = False
    unconditional_update = False

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("failurePolicy") is None:
            spec["failurePolicy"] = "Fail"
        _default_match(spec.get("matchConstraints"))

    def validate(self, obj: Object) -> list[Fault]:
        return _policy_faults(obj)


class AdmissionPolicyBindingBehaviour(Behaviour):
    qualified_finalizers = False
    unconditional_update = False

    def default(self, obj: Object) -> None:
        _default_match((obj.get("spec") or {}).get("matchResources"))

    def validate(self, obj: Object) -> list[Fault]:
        return _binding_faults(obj.get("spec") or {})


def _default_match(match: Object | None) -> None:
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


def _policy_faults(policy: Object) -> list[Fault]:
    found: list[Fault] = []
    spec = policy["spec"]
    kind, match = spec.get("paramKind"), spec.get("matchConstraints")
    checks.choice(spec.get("failurePolicy"), ("Fail", "Ignore"), "spec.failurePolicy", found)
    if kind is not None:
        found += [faults.required(f"spec.paramKind.{name}") for name in ("apiVersion", "kind") if not kind.get(name)]
    if match is None:
        found.append(faults.required("spec.matchConstraints"))
    else:
        _check_match(match, "spec.matchConstraints", found)
        if not match.get("resourceRules"):
            found.append(faults.required("spec.matchConstraints.resourceRules"))
    check_conditions(spec.get("matchConditions") or [], "spec.matchConditions", found)
    for index, variable in enumerate(spec.get("variables") or ()):
        _check_variable(variable, f"spec.variables[{index}]", found)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        found += [faults.required(f"spec.{name}", _SOMETHING) for name in ("validations", "auditAnnotations")]
    for index, validation in enumerate(spec.get("validations") or ()):
        _check_validation(validation, f"spec.validations[{index}]", found)
    for index, annotation in enumerate(spec.get("auditAnnotations") or ()):
        at, key = f"spec.auditAnnotations[{index}]", f"{policy['metadata'].get('name')}/{annotation.get('key') or ''}"
        checks.told(names.qualified_name_problems(key), f"{at}.key", key, found)
        _check_expression(annotation, "valueExpression", at, found)
    return found


def _check_match(match: Object, at: str, found: list[Fault]) -> None:
    checks.choice(match.get("matchPolicy"), ("Equivalent", "Exact"), f"{at}.matchPolicy", found)
    for name in ("namespaceSelector", "objectSelector"):
        found += selectors.validate_object(match.get(name), f"{at}.{name}")
    for kind in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(kind) or ()):
            where, named = f"{at}.{kind}[{index}]", rule.get("resourceNames") or []
            check_rule(rule, where, found)
            for number, name in enumerate(named):
                field = f"{where}.resourceNames[{number}]"
                checks.told(names.path_segment_problems(name), field, name, found)
                if name in named[:number]:
                    found.append(faults.duplicate(field, name))


def _check_expression(holder: Object, name: str, at: str, found: list[Fault]) -> None:
    if not (holder.get(name) or "").strip():
        found.append(faults.required(f"{at}.{name}", f"{name} is not specified"))


def _check_variable(variable: Object, at: str, found: list[Fault]) -> None:
    name = variable.get("name") or ""
    if not name:
        found.append(faults.required(f"{at}.name", "name is not specified"))
    elif not _is_identifier(name):
        found.append(faults.invalid(f"{at}.name", name, "must be a valid CEL identifier"))
    _check_expression(variable, "expression", at, found)


def _check_validation(validation: Object, at: str, found: list[Fault]) -> None:
    _check_expression(validation, "expression", at, found)
    for name in ("messageExpression", "message"):
        said = validation.get(name) or ""
        if said and not said.strip():
            found.append(faults.invalid(f"{at}.{name}", said, "must be non-empty if specified"))
        elif name == "message" and "\n" in said.strip():
            found.append(faults.invalid(f"{at}.{name}", said, "must not contain line breaks"))
    checks.choice(validation.get("reason"), _REASONS, f"{at}.reason", found)


def _binding_faults(spec: Object) -> list[Fault]:
    found: list[Fault] = []
    policy, actions = spec.get("policyName") or "", spec.get("validationActions") or []
    reference, match = spec.get("paramRef"), spec.get("matchResources")
    if not policy:
        found.append(faults.required("spec.policyName"))
    else:
        checks.told(names.subdomain_problems(policy), "spec.policyName", policy, found)
    if reference is not None:
        _check_reference(reference, "spec.paramRef", found)
    if match is not None:
        _check_match(match, "spec.matchResources", found)
    if not actions:
        found.append(faults.required("spec.validationActions", "at least one validation action is required"))
    for index, action in enumerate(actions):
        checks.choice(action, _ACTIONS, f"spec.validationActions[{index}]", found)
        if action in actions[:index]:
            found.append(faults.duplicate(f"spec.validationActions[{index}]", action))
    if {"Deny", "Warn"} <= set(actions):
        found.append(faults.invalid("spec.validationActions", actions, _BOTH_ACTIONS))
    return found


def _check_reference(reference: Object, at: str, found: list[Fault]) -> None:
    name, selector, missing = reference.get("name"), reference.get("selector"), reference.get("parameterNotFoundAction")
    if name and selector is not None:
        detail = "name and selector are mutually exclusive"
        found += [faults.forbidden(f"{at}.{one}", detail) for one in ("name", "selector")]
    elif not name and selector is None:
        found.append(faults.required(at, "one of name or selector must be specified"))
    if missing is None:
        found.append(faults.required(f"{at}.parameterNotFoundAction"))
    elif missing not in _MISSING:
        found.append(faults.not_supported(f"{at}.parameterNotFoundAction", missing, _MISSING))
