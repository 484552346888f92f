"""Validation of admission policies and their bindings. The API server compiles the expressions."""

from __future__ import annotations

import re

from torchyard.api import checks, field_errors, names, selectors
from torchyard.api.access.webhooks import check_conditions, check_rule
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import OBJECT_META, StatusSubresourceStrategy
from torchyard.api.strategy import Strategy

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_PARAMETER_NOT_FOUND_ACTIONS = ("Deny", "Allow")
_EMPTY_POLICY = "validations or auditAnnotations must contain at least one item"
_BOTH_ACTIONS = (
    "must not contain both Deny and Warn "
    "(repeating the same validation failure information in the API response and headers serves no purpose)"
)
_is_identifier = re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch


class ValidatingAdmissionPolicyStrategy(StatusSubresourceStrategy):
    status_keeps = OBJECT_META
    qualified_finalizers = False
    unconditional_update = False

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("failurePolicy") is None:
            spec["failurePolicy"] = "Fail"
        _default_match(spec.get("matchConstraints"))

    def validate(self, obj: Object) -> list[FieldError]:
        return _policy_errors(obj)


class ValidatingAdmissionPolicyBindingStrategy(Strategy):
    qualified_finalizers = False
    unconditional_update = False

    def default(self, obj: Object) -> None:
        _default_match((obj.get("spec") or {}).get("matchResources"))

    def validate(self, obj: Object) -> list[FieldError]:
        return _binding_errors(obj.get("spec") or {})


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


def _policy_errors(policy: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = policy["spec"]
    kind, match = spec.get("paramKind"), spec.get("matchConstraints")
    checks.optional_enum(spec.get("failurePolicy"), ("Fail", "Ignore"), "spec.failurePolicy", errs)
    if kind is not None:
        errs += [
            field_errors.required(f"spec.paramKind.{name}") for name in ("apiVersion", "kind") if not kind.get(name)
        ]
        version = kind.get("apiVersion") or ""
        if version.count("/") > 1:
            detail = f"unexpected GroupVersion string: {version}"
            errs.append(field_errors.invalid("spec.paramKind.apiVersion", version, detail))
        elif version:
            problems = names.dns1035_problems(version.rpartition("/")[2])
            checks.report_problems(problems, "spec.paramKind.apiVersion", version, errs)
        if name := kind.get("kind") or "":
            problems = names.dns1035_problems(name.lower())
            prefix = "may have mixed case, but should otherwise match: "
            if problems:
                errs.append(field_errors.invalid("spec.paramKind.kind", name, f"{prefix}{', '.join(problems)}"))
    if match is None:
        errs.append(field_errors.required("spec.matchConstraints"))
    else:
        _check_match(match, "spec.matchConstraints", errs)
        if not match.get("resourceRules"):
            errs.append(field_errors.required("spec.matchConstraints.resourceRules"))
    check_conditions(spec.get("matchConditions") or [], "spec.matchConditions", errs)
    for index, variable in enumerate(spec.get("variables") or ()):
        _check_variable(variable, f"spec.variables[{index}]", errs)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        errs += [field_errors.required(f"spec.{name}", _EMPTY_POLICY) for name in ("validations", "auditAnnotations")]
    for index, validation in enumerate(spec.get("validations") or ()):
        _check_validation(validation, f"spec.validations[{index}]", errs)
    for index, annotation in enumerate(spec.get("auditAnnotations") or ()):
        at, key = f"spec.auditAnnotations[{index}]", f"{policy['metadata'].get('name')}/{annotation.get('key') or ''}"
        checks.report_problems(names.qualified_name_problems(key), f"{at}.key", key, errs)
        _check_expression(annotation, "valueExpression", at, errs)
    return errs


def _check_match(match: Object, at: str, errs: list[FieldError]) -> None:
    checks.optional_enum(match.get("matchPolicy"), ("Equivalent", "Exact"), f"{at}.matchPolicy", errs)
    for name in ("namespaceSelector", "objectSelector"):
        errs += selectors.validate_object(match.get(name), f"{at}.{name}")
    for kind in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(kind) or ()):
            where, named = f"{at}.{kind}[{index}]", rule.get("resourceNames") or []
            check_rule(rule, where, errs)
            for number, (name, is_repeated) in enumerate(zip(named, checks.repetitions(named), strict=True)):
                field = f"{where}.resourceNames[{number}]"
                checks.report_problems(names.path_segment_problems(name), field, name, errs)
                if is_repeated:
                    errs.append(field_errors.duplicate(field, name))


def _check_expression(holder: Object, name: str, at: str, errs: list[FieldError]) -> None:
    if not (holder.get(name) or "").strip():
        errs.append(field_errors.required(f"{at}.{name}", f"{name} is not specified"))


def _check_variable(variable: Object, at: str, errs: list[FieldError]) -> None:
    name = variable.get("name") or ""
    if not name:
        errs.append(field_errors.required(f"{at}.name", "name is not specified"))
    elif not _is_identifier(name):
        errs.append(field_errors.invalid(f"{at}.name", name, "must be a valid CEL identifier"))
    _check_expression(variable, "expression", at, errs)


def _check_validation(validation: Object, at: str, errs: list[FieldError]) -> None:
    _check_expression(validation, "expression", at, errs)
    for name in ("messageExpression", "message"):
        text = validation.get(name) or ""
        if text and not text.strip():
            errs.append(field_errors.invalid(f"{at}.{name}", text, "must be non-empty if specified"))
        elif name == "message" and "\n" in text.strip():
            errs.append(field_errors.invalid(f"{at}.{name}", text, "must not contain line breaks"))
    checks.optional_enum(validation.get("reason"), _REASONS, f"{at}.reason", errs)


def _binding_errors(spec: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    policy, actions = spec.get("policyName") or "", spec.get("validationActions") or []
    reference, match = spec.get("paramRef"), spec.get("matchResources")
    if not policy:
        errs.append(field_errors.required("spec.policyName"))
    else:
        checks.report_problems(names.subdomain_problems(policy), "spec.policyName", policy, errs)
    if reference is not None:
        _check_reference(reference, "spec.paramRef", errs)
    if match is not None:
        _check_match(match, "spec.matchResources", errs)
    if not actions:
        errs.append(field_errors.required("spec.validationActions", "at least one validation action is required"))
    for index, (action, is_repeated) in enumerate(zip(actions, checks.repetitions(actions), strict=True)):
        checks.optional_enum(action, _ACTIONS, f"spec.validationActions[{index}]", errs)
        if is_repeated:
            errs.append(field_errors.duplicate(f"spec.validationActions[{index}]", action))
    if {"Deny", "Warn"} <= set(actions):
        errs.append(field_errors.invalid("spec.validationActions", actions, _BOTH_ACTIONS))
    return errs


def _check_reference(reference: Object, at: str, errs: list[FieldError]) -> None:
    name, selector, missing = reference.get("name"), reference.get("selector"), reference.get("parameterNotFoundAction")
    if name and selector is not None:
        detail = "name and selector are mutually exclusive"
        errs += [field_errors.forbidden(f"{at}.{name}", detail) for name in ("name", "selector")]
    elif not name and selector is None:
        errs.append(field_errors.required(at, "one of name or selector must be specified"))
    if name:
        checks.report_problems(names.path_segment_problems(name), f"{at}.name", name, errs)
    errs += selectors.validate_object(selector, f"{at}.selector")
    if not missing:
        errs.append(field_errors.required(f"{at}.parameterNotFoundAction"))
    elif missing not in _PARAMETER_NOT_FOUND_ACTIONS:
        errs.append(field_errors.not_supported(f"{at}.parameterNotFoundAction", missing, _PARAMETER_NOT_FOUND_ACTIONS))
