"""Which writes a webhook or policy applies to: rules, and namespace and object selectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.selectors import from_object
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes

NamespaceGetter = Callable[[str], Object | None]
EquivalentsGetter = Callable[[Resource], Iterable[Resource]]


class Matcher:
    """Matches writes against rules and selectors; looks up namespaces and equivalent resources."""

    def __init__(self, namespace: NamespaceGetter, equivalents: EquivalentsGetter) -> None:
        self._namespace = namespace
        self._equivalents = equivalents

    def match(
        self, attributes: VersionedAttributes, constraints: Mapping[str, Any], rules: str = "rules"
    ) -> VersionedAttributes | None:
        """The write in the version that the rules name; None if they do not match. No rules match nothing."""
        if not self._is_selected(attributes, constraints):
            return None
        return self.match_version(
            attributes, constraints.get(rules) or (), constraints.get("matchPolicy") or "Equivalent"
        )

    def match_version(
        self, attributes: VersionedAttributes, rules: Iterable[Mapping[str, Any]], policy: str
    ) -> VersionedAttributes | None:
        rules = list(rules)
        if any(_matches(rule, attributes, attributes.resource) for rule in rules):
            return attributes
        if policy == "Equivalent":
            for equivalent in self._equivalents(attributes.resource):
                if any(_matches(rule, attributes, equivalent) for rule in rules):
                    return _convert(attributes, equivalent)
        return None

    def _is_selected(self, attributes: VersionedAttributes, constraints: Mapping[str, Any]) -> bool:
        selector = constraints.get("objectSelector")
        if selector and not any(from_object(selector).matches(labels) for labels in attributes.labels()):
            return False
        selector = constraints.get("namespaceSelector")
        if not selector:
            return True
        labels = self._namespace_labels(attributes)
        return labels is None or from_object(selector).matches(labels)

    def _namespace_labels(self, attributes: VersionedAttributes) -> Object | None:
        """The labels for a namespace selector; None for cluster-scoped objects, which every selector matches."""
        if attributes.resource.group == "" and attributes.resource.plural == "namespaces":
            # a namespace is matched by its own labels, new ones first
            return next(iter(attributes.labels()), {})
        if not attributes.resource.namespaced:
            return None
        namespace = self._namespace(attributes.namespace)
        return ((namespace or {}).get("metadata") or {}).get("labels") or {}


def _matches(rule: Mapping[str, Any], attributes: VersionedAttributes, resource: Resource) -> bool:
    names = rule.get("resourceNames") or ()
    return (
        _has(rule.get("operations"), attributes.operation)
        and _has(rule.get("apiGroups"), resource.group)
        and _has(rule.get("apiVersions"), resource.version)
        and _matches_scope(rule.get("scope") or "*", resource)
        and _matches_resource(rule.get("resources") or (), resource.plural, attributes.subresource)
        and (not names or attributes.name in names)
    )


def _has(allowed: Iterable[str] | None, value: str) -> bool:
    return any(entry in ("*", value) for entry in allowed or ())


def _matches_scope(scope: str, resource: Resource) -> bool:
    return scope == "*" or (scope == "Namespaced") == resource.namespaced


def _matches_resource(patterns: Iterable[str], plural: str, subresource: str) -> bool:
    """`pods`, `pods/status`, `pods/*`, `*/status`, `*/*`, and `*`, which means no subresource."""
    for pattern in patterns:
        resource, slash, sub = pattern.partition("/")
        if resource in ("*", plural) and ((sub in ("*", subresource)) if slash else not subresource):
            return True
    return False


def _convert(attributes: VersionedAttributes, resource: Resource) -> VersionedAttributes:
    """The same write in another version; only apiVersion and kind change."""

    def converted(obj: Object | None) -> Object | None:
        return None if obj is None else {**obj, "apiVersion": resource.api_version, "kind": resource.kind}

    return replace(attributes, resource=resource, obj=converted(attributes.obj), old=converted(attributes.old))
