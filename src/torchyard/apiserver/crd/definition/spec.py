"""Defaults and validation of a CustomResourceDefinition's specification.

Mirrors apiextensions-apiserver's validation. Its internal type keeps what all versions share at the top of the
specification, and its messages use those paths (`spec.validation`, not `spec.versions[0].schema`); so do these.
"""

from __future__ import annotations

from typing import Any

from torchyard.api import field_errors
from torchyard.api.access.webhooks import check_client, check_reviews
from torchyard.api.field_errors import FieldError
from torchyard.api.names import IMMUTABLE, dns1035_problems, subdomain_problems
from torchyard.api.objects import Object
from torchyard.apiserver.crd.definition.api_approval import approval_errors
from torchyard.apiserver.crd.definition.status import is_established
from torchyard.apiserver.crd.definition.versions import versions_errors


def default_definition(crd: Object) -> None:
    """Set the default names and the default conversion."""
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names["singular"] = names.get("singular") or names["kind"].lower()
        names["listKind"] = names.get("listKind") or f"{names['kind']}List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    service = ((spec["conversion"].get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service is not None and not service.get("port"):
        service["port"] = 443
    for version in spec.get("versions") or ():
        for column in version.get("additionalPrinterColumns") or ():
            if column.get("priority") == 0:
                del column["priority"]


def definition_errors(crd: Object) -> list[FieldError]:
    """The errors of a new CRD; the server validates the metadata, except for the name."""
    spec = crd.get("spec") or {}
    errs = _name_errors(crd) + _spec_errors(spec) + _stored_errors(crd)
    errs += approval_errors(crd, None)
    if spec.get("preserveUnknownFields"):
        errs.append(_no_preserve())
    return errs


def definition_update_errors(new: Object, old: Object) -> list[FieldError]:
    """The errors of an update of a CRD."""
    spec, old_spec = new.get("spec") or {}, old.get("spec") or {}
    errs = _spec_errors(spec)
    fixed = [("group",), ("names", "plural")]
    if is_established(old):
        fixed = [("scope",), ("names", "kind"), *fixed]
    for path in fixed:
        value, old_value = _at(spec, path), _at(old_spec, path)
        if value != old_value:
            errs.append(field_errors.invalid(f"spec.{'.'.join(path)}", value, IMMUTABLE))
    errs += _stored_errors(new) + approval_errors(new, old)
    if spec.get("preserveUnknownFields") and not old_spec.get("preserveUnknownFields"):
        errs.append(_no_preserve())
    return errs


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = (value or {}).get(name)
    return value


def _name_errors(crd: Object) -> list[FieldError]:
    spec = crd.get("spec") or {}
    name = (crd.get("metadata") or {}).get("name") or ""
    if name == f"{_at(spec, ('names', 'plural')) or ''}.{spec.get('group') or ''}":
        return []
    return [field_errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')]


def _no_preserve() -> FieldError:
    detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
    return field_errors.invalid("spec.preserveUnknownFields", True, detail)


def _stored_errors(crd: Object) -> list[FieldError]:
    """Stored versions cannot be removed."""
    field = "status.storedVersions"
    stored = (crd.get("status") or {}).get("storedVersions") or []
    versions = (crd.get("spec") or {}).get("versions") or []
    if not stored:
        return [field_errors.invalid(field, None, "must have at least one stored version")]
    errs = [
        field_errors.invalid(field, stored, f"must have the storage version {version.get('name')}")
        for version in versions
        if version.get("storage") and version.get("name") not in stored
    ]
    names = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in names:
            detail = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions"
                f" until a storage migration ensures no data remains persisted in {name} and removes {name} from"
                " status.storedVersions"
            )
            errs.append(field_errors.invalid(f"{field}[{index}]", name, detail))
    return errs


def _spec_errors(spec: Object) -> list[FieldError]:
    errs = _group_errors(spec.get("group") or "")
    scope = spec.get("scope") or ""
    if not scope:
        errs.append(field_errors.required("spec.scope"))
    elif scope not in ("Cluster", "Namespaced"):
        errs.append(field_errors.not_supported("spec.scope", scope, ("Cluster", "Namespaced")))
    errs += versions_errors(spec.get("versions") or [])
    errs += _names_errors(spec.get("names") or {}, "spec.names")
    errs += _conversion_errors(spec.get("conversion") or {})
    return errs


def _group_errors(group: str) -> list[FieldError]:
    if not group:
        return [field_errors.required("spec.group")]
    if problems := subdomain_problems(group):
        return [field_errors.invalid("spec.group", group, ",".join(problems))]
    if "." not in group:
        return [field_errors.invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _names_errors(names: Object, path: str) -> list[FieldError]:
    required = ("plural", "singular", "kind", "listKind")
    errs = [field_errors.required(f"{path}.{name}") for name in required if not names.get(name)]
    for key in ("plural", "singular"):
        if names.get(key) and (problems := dns1035_problems(names[key])):
            errs.append(field_errors.invalid(f"{path}.{key}", names[key], ",".join(problems)))
    for key in ("kind", "listKind"):
        if names.get(key) and (problems := dns1035_problems(names[key].lower())):
            detail = "may have mixed case, but should otherwise match: " + ",".join(problems)
            errs.append(field_errors.invalid(f"{path}.{key}", names[key], detail))
    if names.get("kind") and names["kind"] == names.get("listKind"):
        detail = "kind and listKind may not be the same"
        errs.append(field_errors.invalid(f"{path}.listKind", names["listKind"], detail))
    for key in ("shortNames", "categories"):
        for index, name in enumerate(names.get(key) or ()):
            if problems := dns1035_problems(name):
                errs.append(field_errors.invalid(f"{path}.{key}[{index}]", name, ",".join(problems)))
    return errs


def _conversion_errors(conversion: Object) -> list[FieldError]:
    strategy = conversion.get("strategy") or ""
    if strategy == "Webhook":
        return _conversion_webhook_errors(conversion.get("webhook") or {})
    if strategy not in ("", "None"):
        return [field_errors.not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))]
    detail = "should not be set when strategy is not set to Webhook"
    errs: list[FieldError] = [] if strategy else [field_errors.required("spec.conversion.strategy")]
    webhook = conversion.get("webhook") or {}
    if webhook.get("clientConfig") is not None:
        errs.append(field_errors.forbidden("spec.conversion.webhookClientConfig", detail))
    if webhook.get("conversionReviewVersions"):
        errs.append(field_errors.forbidden("spec.conversion.conversionReviewVersions", detail))
    return errs


def _conversion_webhook_errors(webhook: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    client = webhook.get("clientConfig")
    if client is None:
        detail = "required when strategy is set to Webhook"
        errs.append(field_errors.required("spec.conversion.webhookClientConfig", detail))
    else:
        check_client(client, "spec.conversion.webhookClientConfig", errs)
    versions, field = webhook.get("conversionReviewVersions") or [], "spec.conversion.conversionReviewVersions"
    if versions:
        check_reviews(versions, field, errs)
    else:
        errs.append(field_errors.required(field))
    return errs
