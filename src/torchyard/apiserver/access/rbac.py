"""The RBAC authorizer over the stored roles and bindings.

As in kube-apiserver, rules only allow, `system:masters` may do everything, and a denial names the user, the verb and
the resource. The stored roles are read again only after one of them changed.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torchyard.api.access.aggregation import aggregated_rules
from torchyard.api.errors import StatusError, forbidden
from torchyard.api.objects import Object
from torchyard.api.quoting import quote
from torchyard.apiserver.access.authentication import MASTERS, User, service_account_username
from torchyard.apiserver.access.lister import Lister

GROUP = "rbac.authorization.k8s.io"
RESOURCES = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
EVERYTHING: tuple[Object, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


class AuthorizerAttributes(NamedTuple):
    """What a request wants to do: a verb on a resource, or (with a path, which may be empty) on a non-resource URL."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def forbidden_error(self, user: User, reason: str = "") -> StatusError:
        message = f"User {quote(user.name)} cannot {self.verb} "
        if self.path is not None:
            message += f"path {quote(self.path)}"
        else:
            scope = f"in the namespace {quote(self.namespace)}" if self.namespace else "at the cluster scope"
            message += f"resource {quote(self.full_resource)} in API group {quote(self.group)} {scope}"
        message = html.escape(message, quote=False)  # as upstream, for clients that show it in a browser
        if reason:
            message += f": {reason}"
        if self.path is not None:
            return StatusError(403, "Forbidden", f"forbidden: {message}", details={})
        return forbidden(self.resource, self.group, self.name, message)


@dataclass(frozen=True, slots=True)
class AuthorizerDecision:
    """Whether a request is allowed, and by which binding, or why no binding could be evaluated."""

    allowed: bool
    reason: str = ""


_ALLOWED = AuthorizerDecision(True)


@dataclass(frozen=True, slots=True)
class Grant:
    """The rules that one binding grants to one subject; `namespace` is empty for a ClusterRoleBinding."""

    position: tuple[int, int]  # of the binding among all bindings, cluster-wide ones first, and of the subject in it
    namespace: str
    rules: tuple[Object, ...]
    description: str
    missing: str = ""


def rule_allows(rule: Mapping[str, Any], access: AuthorizerAttributes) -> bool:
    verbs = rule.get("verbs") or ()
    if access.verb not in verbs and "*" not in verbs:
        return False
    if access.path is not None:
        return any(_path_matches(url, access.path) for url in rule.get("nonResourceURLs") or ())
    groups = rule.get("apiGroups") or ()
    if access.group not in groups and "*" not in groups:
        return False
    names = rule.get("resourceNames") or ()
    if names and access.name not in names:
        return False
    resources = rule.get("resources") or ()
    return (
        "*" in resources
        or access.full_resource in resources
        or bool(access.subresource and f"*/{access.subresource}" in resources)
    )


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


class Authorizer:
    """Authorizes requests by the roles and bindings in the store."""

    _LIMIT = 8192

    def __init__(self, lister: Lister) -> None:
        self._lister = lister
        self._revision: tuple[int, ...] = ()
        self._grants: dict[tuple[str, str], list[Grant]] = {}
        self._decisions: dict[tuple[str, tuple[str, ...], AuthorizerAttributes], AuthorizerDecision] = {}

    def check(self, user: User, access: AuthorizerAttributes) -> None:
        """Raise 403 unless the user is allowed."""
        decision = self.authorize(user, access)
        if not decision.allowed:
            raise access.forbidden_error(user, decision.reason)

    def authorize(self, user: User, access: AuthorizerAttributes) -> AuthorizerDecision:
        if MASTERS in user.groups:
            return _ALLOWED
        self._refresh()
        key = (user.name, user.groups, access)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._authorize(user, access)
            if len(self._decisions) >= self._LIMIT:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def rules_for(self, user: User, namespace: str = "") -> tuple[list[Object], list[str]]:
        """The user's rules in a namespace (empty: cluster-wide only), and errors for roles that do not exist."""
        self._refresh()
        rules: list[Object] = []
        missing = []
        for grant in self._grants_of(user, namespace):
            rules.extend(grant.rules)
            if grant.missing:
                missing.append(grant.missing)
        return rules, missing

    def _authorize(self, user: User, access: AuthorizerAttributes) -> AuthorizerDecision:
        missing = []
        for grant in self._grants_of(user, access.namespace):
            if any(rule_allows(rule, access) for rule in grant.rules):
                return AuthorizerDecision(True, f"RBAC: allowed by {grant.description}")
            if grant.missing:
                missing.append(grant.missing)
        return AuthorizerDecision(False, f"RBAC: {aggregate_errors(missing)}" if missing else "")

    def _grants_of(self, user: User, namespace: str) -> Iterator[Grant]:
        """The user's grants, cluster-wide ones first; one for each binding, even if several of its subjects match."""
        grants = [
            grant
            for subject in (("User", user.name), *(("Group", group) for group in user.groups))
            for grant in self._grants.get(subject, ())
            if not grant.namespace or grant.namespace == namespace
        ]
        binding = -1
        for grant in sorted(grants, key=lambda grant: grant.position):
            if grant.position[0] != binding:
                binding = grant.position[0]
                yield grant

    def _refresh(self) -> None:
        revision = tuple(self._lister.revision(GROUP, resource) for resource in RESOURCES)
        if revision != self._revision:
            self._grants = _grants(self._lister)
            self._decisions.clear()
            self._revision = revision


def aggregate_errors(errors: list[str]) -> str:
    """Several errors as one text, as Go prints an aggregate error."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def role_rules(lister: Lister, role_ref: Mapping[str, Any], namespace: str) -> tuple[Object, ...] | None:
    """The rules of the role a binding in `namespace` (empty: cluster-wide) refers to; None when it does not exist."""
    if role_ref.get("kind") == "ClusterRole":
        role = lister.get(GROUP, "clusterroles", "", role_ref.get("name", ""))
        if role is None:
            return None
        # Computed here instead of waiting for a controller to write the union into the role.
        return tuple(aggregated_rules(role, lister.list(GROUP, "clusterroles") if "aggregationRule" in role else ()))
    role = lister.get(GROUP, "roles", namespace, role_ref.get("name", ""))
    return None if role is None else tuple(role.get("rules") or ())


def _grants(lister: Lister) -> dict[tuple[str, str], list[Grant]]:
    """Every binding's rules, by subject: ("User", name) or ("Group", name)."""
    grants: dict[tuple[str, str], list[Grant]] = {}
    rules_of: dict[tuple[str, str, str], tuple[Object, ...] | None] = {}  # thousands of bindings name few roles
    bindings = (*lister.list(GROUP, "clusterrolebindings"), *lister.list(GROUP, "rolebindings"))
    for number, binding in enumerate(bindings):
        name, namespace = binding["metadata"]["name"], binding["metadata"].get("namespace", "")
        ref = binding["roleRef"]
        role_key = ("" if ref["kind"] == "ClusterRole" else namespace, ref["kind"], ref["name"])
        if role_key not in rules_of:
            rules_of[role_key] = role_rules(lister, ref, namespace)
        rules = rules_of[role_key]
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        full_name = f"{name}/{namespace}" if namespace else name
        missing = f'{ref["kind"].lower()}.{GROUP} "{ref["name"]}" not found' if rules is None else ""
        for place, subject in enumerate(binding.get("subjects") or ()):
            key, subject_name = _subject(subject, namespace)
            description = f'{kind} "{full_name}" of {ref["kind"]} "{ref["name"]}" to {subject["kind"]} "{subject_name}"'
            grants.setdefault(key, []).append(Grant((number, place), namespace, rules or (), description, missing))
    return grants


def _subject(subject: Mapping[str, Any], namespace: str) -> tuple[tuple[str, str], str]:
    """The key of a subject in the index, and its name in messages."""
    kind, name = subject["kind"], subject["name"]
    if kind == "ServiceAccount":
        namespace = subject.get("namespace") or namespace
        return ("User", service_account_username(namespace, name)), f"{name}/{namespace}"
    return (kind, name), name
