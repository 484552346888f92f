"""Which writes a webhook or a policy is asked about: rules, and selectors of namespaces and objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.selectors import from_object
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes

GetNamespace = Callable[[str], Object | None]
GetEquivalents = Callable[[Resource], Iterable[Resource]]


class Matcher:
    """Decides with what it can look up: namespaces, and other versions of a resource."""

    def __init__(self, namespace: GetNamespace, equivalents: GetEquivalents) -> None:
        self._namespace = namespace
        self._equivalents = equivalents

    def match(
        self, asked: VersionedAttributes, constraints: Mapping[str, Any], rules: str = "rules"
    ) -> VersionedAttributes | None:
        """What to ask, in the version the rules name; None if they do not mean it. Nothing said means nothing meant."""
        if not self._is_selected(asked, constraints):
            return None
        return self.version(asked, constraints.get(rules) or (), constraints.get("matchPolicy") or "Equivalent")

    def version(
        self, asked: VersionedAttributes, rules: Iterable[Mapping[str, Any]], policy: str
    ) -> VersionedAttributes | None:
        rules = list(rules)
        if any(_matches(rule, asked, asked.resource) for rule in rules):
            return asked
        if policy == "Equivalent":
            for other in self._equivalents(asked.resource):
                if any(_matches(rule, asked, other) for rule in rules):
                    return _converted(asked, other)
        return None

    def _is_selected(self, asked: VersionedAttributes, constraints: Mapping[str, Any]) -> bool:
        wanted = constraints.get("objectSelector")
        if wanted and not any(from_object(wanted).matches(labels) for labels in asked.labels()):
            return False
        wanted = constraints.get("namespaceSelector")
        if not wanted:
            return True
        labels = self._namespace_labels(asked)
        return labels is None or from_object(wanted).matches(labels)

    def _namespace_labels(self, asked: VersionedAttributes) -> Object | None:
        """The labels a namespace selector is about; None for what belongs to no namespace, which it always selects."""
        if asked.resource.group == "" and asked.resource.plural == "namespaces":
            # a namespace is selected by what it is, or is about to be
            return next(iter(asked.labels()), {})
        if not asked.resource.namespaced:
            return None
        found = self._namespace(asked.namespace)
        return ((found or {}).get("metadata") or {}).get("labels") or {}


def _matches(rule: Mapping[str, Any], asked: VersionedAttributes, resource: Resource) -> bool:
    names = rule.get("resourceNames") or ()
    return (
        _has(rule.get("operations"), asked.operation)
        and _has(rule.get("apiGroups"), resource.group)
        and _has(rule.get("apiVersions"), resource.version)
        and _matches_scope(rule.get("scope") or "*", resource)
        and _matches_resource(rule.get("resources") or (), resource.plural, asked.subresource)
        and (not names or asked.name in names)
    )


def _has(wanted: Iterable[str] | None, value: str) -> bool:
    return any(one in ("*", value) for one in wanted or ())


def _matches_scope(scope: str, resource: Resource) -> bool:
    return scope == "*" or (scope == "Namespaced") == resource.namespaced


def _matches_resource(wanted: Iterable[str], plural: str, subresource: str) -> bool:
    """`pods`, `pods/status`, `pods/*`, `*/status`, `*/*`, and `*`, which means no subresource."""
    for one in wanted:
        resource, slash, sub = one.partition("/")
        if resource in ("*", plural) and ((sub in ("*", subresource)) if slash else not subresource):
            return True
    return False


def _converted(asked: VersionedAttributes, resource: Resource) -> VersionedAttributes:
    """The same write in another version; custom resources differ by nothing else."""

    def shown(obj: Object | None) -> Object | None:
        return None if obj is None else {**obj, "apiVersion": resource.api_version, "kind": resource.kind}

    return replace(asked, resource=resource, obj=shown(asked.obj), old=shown(asked.old))
