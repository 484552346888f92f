"""A CustomResourceDefinition as its author sends it: defaults and faults.

Mirrors apiextensions-apiserver's checks. It keeps what all versions have in common once, at the top of the
specification, and names it there in its messages (`spec.validation`, not `spec.versions[0].schema`): so do we.
"""

from __future__ import annotations

from typing import Any

from torchyard.api import faults
from torchyard.api.faults import Fault
from torchyard.api.names import IMMUTABLE, dns1035_problems, subdomain_problems
from torchyard.apiserver.crd.definition.approval import approval_faults
from torchyard.apiserver.crd.definition.status import is_established
from torchyard.apiserver.crd.definition.versions import versions_faults

Object = dict[str, Any]


def default_definition(crd: Object) -> None:
    """Fill in the names that follow from others, and the conversion."""
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names["singular"] = names.get("singular") or names["kind"].lower()
        names["listKind"] = names.get("listKind") or f"{names['kind']}List"
    if not (spec.get("conversion") or {}).get("strategy"):
        spec["conversion"] = {**(spec.get("conversion") or {}), "strategy": "None"}
    for version in spec.get("versions") or ():
        for column in version.get("additionalPrinterColumns") or ():
            if column.get("priority") == 0:
                del column["priority"]


def definition_faults(crd: Object) -> list[Fault]:
    """The faults of a definition as it is created; metadata is checked by the server, but for the name."""
    spec = crd.get("spec") or {}
    found = _name_faults(crd) + _spec_faults(spec) + _stored_faults(crd)
    found += approval_faults(crd, None)
    if spec.get("preserveUnknownFields"):
        found.append(_no_preserve())
    return found


def definition_update_faults(new: Object, old: Object) -> list[Fault]:
    """The faults of a change of a definition."""
    spec, old_spec = new.get("spec") or {}, old.get("spec") or {}
    found = _spec_faults(spec)
    fixed = [("group",), ("names", "plural")]
    if is_established(old):
        fixed = [("scope",), ("names", "kind"), *fixed]
    for path in fixed:
        value, old_value = _at(spec, path), _at(old_spec, path)
        if value != old_value:
            found.append(faults.invalid(f"spec.{'.'.join(path)}", value, IMMUTABLE))
    found += _stored_faults(new) + approval_faults(new, old)
    if spec.get("preserveUnknownFields") and not old_spec.get("preserveUnknownFields"):
        found.append(_no_preserve())
    return found


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = (value or {}).get(name)
    return value


def _name_faults(crd: Object) -> list[Fault]:
    spec = crd.get("spec") or {}
    name = (crd.get("metadata") or {}).get("name") or ""
    if name == f"{_at(spec, ('names', 'plural')) or ''}.{spec.get('group') or ''}":
        return []
    return [faults.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')]


def _no_preserve() -> Fault:
    detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
    return faults.invalid("spec.preserveUnknownFields", True, detail)


def _stored_faults(crd: Object) -> list[Fault]:
    """Versions that objects may still be stored in must stay."""
    field = "status.storedVersions"
    stored = (crd.get("status") or {}).get("storedVersions") or []
    versions = (crd.get("spec") or {}).get("versions") or []
    if not stored:
        return [faults.invalid(field, None, "must have at least one stored version")]
    found = [
        faults.invalid(field, stored, f"must have the storage version {version.get('name')}")
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
            found.append(faults.invalid(f"{field}[{index}]", name, detail))
    return found


def _spec_faults(spec: Object) -> list[Fault]:
    found = _group_faults(spec.get("group") or "")
    scope = spec.get("scope") or ""
    if not scope:
        found.append(faults.required("spec.scope"))
    elif scope not in ("Cluster", "Namespaced"):
        found.append(faults.not_supported("spec.scope", scope, ("Cluster", "Namespaced")))
    found += versions_faults(spec.get("versions") or [])
    found += _names_faults(spec.get("names") or {}, "spec.names")
    found += _conversion_faults(spec.get("conversion") or {})
    return found


def _group_faults(group: str) -> list[Fault]:
    if not group:
        return [faults.required("spec.group")]
    if problems := subdomain_problems(group):
        return [faults.invalid("spec.group", group, ",".join(problems))]
    if "." not in group:
        return [faults.invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _names_faults(names: Object, path: str) -> list[Fault]:
    required = ("plural", "singular", "kind", "listKind")
    found = [faults.required(f"{path}.{name}") for name in required if not names.get(name)]
    for key in ("plural", "singular"):
        if names.get(key) and (problems := dns1035_problems(names[key])):
            found.append(faults.invalid(f"{path}.{key}", names[key], ",".join(problems)))
    for key in ("kind", "listKind"):
        if names.get(key) and (problems := dns1035_problems(names[key].lower())):
            detail = "may have mixed case, but should otherwise match: " + ",".join(problems)
            found.append(faults.invalid(f"{path}.{key}", names[key], detail))
    if names.get("kind") and names["kind"] == names.get("listKind"):
        detail = "kind and listKind may not be the same"
        found.append(faults.invalid(f"{path}.listKind", names["listKind"], detail))
    for key in ("shortNames", "categories"):
        for index, name in enumerate(names.get(key) or ()):
            if problems := dns1035_problems(name):
                found.append(faults.invalid(f"{path}.{key}[{index}]", name, ",".join(problems)))
    return found


def _conversion_faults(conversion: Object) -> list[Fault]:
    strategy = conversion.get("strategy") or "None"
    if strategy == "Webhook":
        # Torchyard converts by changing the apiVersion only.
        detail = "conversion webhooks are not served by Torchyard; use strategy None, or a single version"
        return [faults.forbidden("spec.conversion.strategy", detail)]
    if strategy != "None":
        return [faults.not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))]
    detail = "should not be set when strategy is not set to Webhook"
    found: list[Fault] = []
    webhook = conversion.get("webhook") or {}
    if webhook.get("clientConfig") is not None:
        found.append(faults.forbidden("spec.conversion.webhookClientConfig", detail))
    if webhook.get("conversionReviewVersions"):
        found.append(faults.forbidden("spec.conversion.conversionReviewVersions", detail))
    return found
