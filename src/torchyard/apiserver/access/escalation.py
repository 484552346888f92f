"""Privilege escalation checks for writes of roles and bindings: a user can grant only permissions it holds.

As in kube-apiserver, the writer needs every permission in the role, or the verb `escalate` on the role, or for a
binding the verb `bind` on the referenced role. `system:masters` may write any role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torchyard.api.errors import forbidden, not_found
from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import MASTERS, User
from torchyard.apiserver.access.lister import Lister
from torchyard.apiserver.access.rbac import (
    EVERYTHING,
    GROUP,
    Authorizer,
    AuthorizerAttributes,
    aggregate_errors,
    role_rules,
)

# How many permissions of one role are compared with those of the user.
MAX_RIGHTS = 10_000


def check_role(
    user: User,
    resource: str,
    role: Object,
    authorizer: Authorizer,
    *,
    old: Object | None = None,
    request_name: str = "",
) -> None:
    """Check the create or update of a Role or ClusterRole; `request_name` is the name in the URL, empty for a POST."""
    if MASTERS in user.groups:
        return
    metadata = role["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
    access = AuthorizerAttributes("escalate", GROUP, resource, namespace=namespace, name=request_name)
    if authorizer.authorize(user, access).allowed:
        return
    _check_held(user, resource, name, role.get("rules") or (), authorizer=authorizer, namespace=namespace)
    if not role.get("aggregationRule") and not (old or {}).get("aggregationRule"):
        return
    held, _ = authorizer.rules_for(user)
    if any(True for _ in uncovered(held, EVERYTHING)):
        raise forbidden(resource, GROUP, name, "must have cluster-admin privileges to use the aggregationRule")


def check_binding(user: User, resource: str, binding: Object, authorizer: Authorizer, lister: Lister) -> None:
    """Check the create or update of a RoleBinding or ClusterRoleBinding."""
    if MASTERS in user.groups:
        return
    metadata, ref = binding["metadata"], binding.get("roleRef") or {}
    namespace, role_name = metadata.get("namespace", ""), ref.get("name", "")
    role_resource = "clusterroles" if ref.get("kind") == "ClusterRole" else "roles"
    access = AuthorizerAttributes("bind", GROUP, role_resource, namespace=namespace, name=role_name)
    if authorizer.authorize(user, access).allowed:
        return
    rules = role_rules(lister, ref, namespace)
    if rules is None:
        raise not_found(resource, GROUP, role_name)
    _check_held(user, resource, metadata.get("name", ""), rules, authorizer=authorizer, namespace=namespace)


def _check_held(
    user: User,
    resource: str,
    name: str,
    rules: Sequence[Mapping[str, Any]],
    *,
    authorizer: Authorizer,
    namespace: str,
) -> None:
    held, missing_roles = authorizer.rules_for(user, namespace)
    rules = [rule for rule in rules if not any(_covers_whole(owned, rule) for owned in held)]
    _check_size(user, resource, name, rules)
    missing = list(uncovered(held, rules))
    if not missing:
        return
    groups = _quote_all(user.groups)
    reason = (
        f'user "{user.name}" (groups={groups}) is attempting to grant RBAC permissions not currently held:\n'
        + "\n".join(sorted({_format_rule(rule) for rule in _compact(missing)}))
    )
    if missing_roles:
        reason += f"; resolution errors: [{aggregate_errors(missing_roles)}]"
    raise forbidden(resource, GROUP, name, reason)


def uncovered(held: Iterable[Mapping[str, Any]], rules: Iterable[Mapping[str, Any]]) -> Iterator[Object]:
    """The permissions in `rules` that no rule of `held` covers, one verb on one target each."""
    held = list(held)
    for rule in rules:
        for right in _single_rights(rule):
            if not any(_covers(owned, right) for owned in held):
                yield right


def _covers_whole(owned: Mapping[str, Any], rule: Mapping[str, Any]) -> bool:
    """Whether one rule covers another with all its combinations, without looking at each of them."""

    def has_all(field: str) -> bool:
        values = owned.get(field) or ()
        return "*" in values or set(rule.get(field) or ()) <= set(values)

    return (
        not rule.get("nonResourceURLs")
        and not owned.get("resourceNames")
        and all(map(has_all, ("verbs", "apiGroups", "resources")))
    )


def _check_size(user: User, resource: str, name: str, rules: Sequence[Mapping[str, Any]]) -> None:
    """Reject rules with too many combinations: one of a thousand groups, resources, names and verbs has 10^12."""
    count = 0
    for rule in rules:
        verbs, names = len(rule.get("verbs") or ()), len(rule.get("resourceNames") or (None,))
        count += len(rule.get("apiGroups") or ()) * len(rule.get("resources") or ()) * names * verbs
        count += len(rule.get("nonResourceURLs") or ()) * verbs
    if count > MAX_RIGHTS:
        reason = (
            f'user "{user.name}" is attempting to grant {count} RBAC permissions; at most {MAX_RIGHTS} can be checked'
        )
        raise forbidden(resource, GROUP, name, reason)


def _single_rights(rule: Mapping[str, Any]) -> Iterator[Object]:
    """Break a rule down into rules of one group, resource, name and verb each."""
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            names = rule.get("resourceNames") or (None,)
            for name in names:
                for verb in verbs:
                    right: Object = {"apiGroups": [group], "resources": [resource]}
                    if name is not None:
                        right["resourceNames"] = [name]
                    yield {**right, "verbs": [verb]}
    for url in rule.get("nonResourceURLs") or ():
        for verb in verbs:
            yield {"nonResourceURLs": [url], "verbs": [verb]}


def _covers(owned: Mapping[str, Any], right: Object) -> bool:
    if not _has(owned.get("verbs"), right["verbs"][0]):
        return False
    if "nonResourceURLs" in right:
        return any(_url_covers(url, right["nonResourceURLs"][0]) for url in owned.get("nonResourceURLs") or ())
    names = owned.get("resourceNames")
    if names and right.get("resourceNames", [None])[0] not in names:
        return False
    resource, resources = right["resources"][0], owned.get("resources") or ()
    _, slash, subresource = resource.partition("/")
    return _has(owned.get("apiGroups"), right["apiGroups"][0]) and (
        _has(resources, resource) or bool(slash and f"*/{subresource}" in resources)
    )


def _has(values: Sequence[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)


def _url_covers(owned: str, url: str) -> bool:
    return owned == url or (owned.endswith("*") and url.startswith(owned.rstrip("*")))


def _compact(rights: Iterable[Object]) -> list[Object]:
    """Merge permissions on the same resource and name into one rule with several verbs."""
    rules: list[Object] = []
    by_target: dict[tuple[str, ...], Object] = {}
    for right in rights:
        if "nonResourceURLs" in right:
            rules.append(right)
            continue
        target = (right["apiGroups"][0], right["resources"][0], *right.get("resourceNames", ()))
        merged = by_target.get(target)
        if merged is None:
            by_target[target] = merged = {**right, "verbs": []}
            rules.append(merged)
        merged["verbs"].extend(verb for verb in right["verbs"] if verb not in merged["verbs"])
    return rules


_FIELD_LABELS = {
    "apiGroups": "APIGroups",
    "resources": "Resources",
    "nonResourceURLs": "NonResourceURLs",
    "resourceNames": "ResourceNames",
    "verbs": "Verbs",
}


def _format_rule(rule: Mapping[str, Any]) -> str:
    parts = (f"{label}:{_quote_all(rule[field])}" for field, label in _FIELD_LABELS.items() if rule.get(field))
    return "{" + ", ".join(parts) + "}"


def _quote_all(values: Iterable[str]) -> str:
    return "[" + " ".join(f'"{value}"' for value in values) + "]"
