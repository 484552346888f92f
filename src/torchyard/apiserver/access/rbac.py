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


Subject = tuple[str, str]  # ("User", name) or ("Group", name)


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
    """What one binding grants to one subject; `namespace` is empty for a ClusterRoleBinding."""

    namespace: str
    binding: str
    subject_index: int
    role_kind: str
    role_name: str
    description: str

    @property
    def position(self) -> tuple[bool, str, str, int]:
        """Cluster-wide grants come first, then the order of the bindings' names and of their subjects."""
        return bool(self.namespace), self.namespace, self.binding, self.subject_index

    @property
    def missing_role(self) -> str:
        return f"{self.role_kind.lower()}.{GROUP} {quote(self.role_name)} not found"


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
        # By the key of a binding: its revision, and its grants with the subjects that have them. Only bindings that
        # changed are read again, because a namespace's administrator may create thousands.
        self._bindings: dict[str, tuple[int, tuple[tuple[Subject, Grant], ...]]] = {}
        self._grants: dict[Subject, list[Grant]] = {}
        self._rules: dict[tuple[str, str, str], tuple[Object, ...] | None] = {}
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
            granted = self._rules_of(grant)
            if granted is None:
                missing.append(grant.missing_role)
            else:
                rules.extend(granted)
        return rules, missing

    def _authorize(self, user: User, access: AuthorizerAttributes) -> AuthorizerDecision:
        missing = []
        for grant in self._grants_of(user, access.namespace):
            rules = self._rules_of(grant)
            if rules is None:
                missing.append(grant.missing_role)
            elif any(rule_allows(rule, access) for rule in rules):
                return AuthorizerDecision(True, f"RBAC: allowed by {grant.description}")
        return AuthorizerDecision(False, f"RBAC: {aggregate_errors(missing)}" if missing else "")

    def _grants_of(self, user: User, namespace: str) -> Iterator[Grant]:
        """The user's grants, cluster-wide ones first; one for each binding, even if several of its subjects match."""
        grants = [
            grant
            for subject in (("User", user.name), *(("Group", group) for group in user.groups))
            for grant in self._grants.get(subject, ())
            if not grant.namespace or grant.namespace == namespace
        ]
        binding: tuple[str, str] | None = None
        for grant in sorted(grants, key=lambda grant: grant.position):
            if (grant.namespace, grant.binding) != binding:
                binding = grant.namespace, grant.binding
                yield grant

    def _rules_of(self, grant: Grant) -> tuple[Object, ...] | None:
        """The rules of the role that a grant names; None when it does not exist."""
        namespace = "" if grant.role_kind == "ClusterRole" else grant.namespace
        key = (namespace, grant.role_kind, grant.role_name)
        if key not in self._rules:
            reference = {"kind": grant.role_kind, "name": grant.role_name}
            self._rules[key] = role_rules(self._lister, reference, grant.namespace)
        return self._rules[key]

    def _refresh(self) -> None:
        revision = tuple([self._lister.revision(GROUP, resource) for resource in RESOURCES])
        if revision == self._revision:
            return
        bindings: dict[str, tuple[int, tuple[tuple[Subject, Grant], ...]]] = {}
        grants: dict[Subject, list[Grant]] = {}
        for resource in ("clusterrolebindings", "rolebindings"):
            for record in self._lister.records(GROUP, resource):
                key = f"{resource}/{record.key}"
                known = self._bindings.get(key)
                if known is None or known[0] != record.rev:
                    known = record.rev, tuple(_binding_grants(record.object()))
                bindings[key] = known
                for subject, grant in known[1]:
                    grants.setdefault(subject, []).append(grant)
        self._bindings, self._grants, self._rules = bindings, grants, {}
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


def _binding_grants(binding: Object) -> Iterator[tuple[Subject, Grant]]:
    """The grants of a binding, each with its subject."""
    name, namespace = binding["metadata"]["name"], binding["metadata"].get("namespace", "")
    ref = binding["roleRef"]
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    full_name = f"{name}/{namespace}" if namespace else name
    for index, subject in enumerate(binding.get("subjects") or ()):
        key, subject_name = _subject(subject, namespace)
        description = f'{kind} "{full_name}" of {ref["kind"]} "{ref["name"]}" to {subject["kind"]} "{subject_name}"'
        yield key, Grant(namespace, name, index, ref["kind"], ref["name"], description)


def _subject(subject: Mapping[str, Any], namespace: str) -> tuple[Subject, str]:
    """The key of a subject in the index, and its name in messages."""
    kind, name = subject["kind"], subject["name"]
    if kind == "ServiceAccount":
        namespace = subject.get("namespace") or namespace
        return ("User", service_account_username(namespace, name)), f"{name}/{namespace}"
    return (kind, name), name
