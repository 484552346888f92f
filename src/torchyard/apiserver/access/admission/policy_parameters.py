"""Whoever lets an admission policy read parameters must be allowed to read them: messages can contain their values."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api import field_errors
from torchyard.api.errors import invalid
from torchyard.api.objects import Object
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes
from torchyard.apiserver.access.authentication import MASTERS, User
from torchyard.apiserver.access.rbac import Authorizer, AuthorizerAttributes

GROUP = "admissionregistration.k8s.io"
POLICIES, BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
# From an apiVersion and a kind to the plural of the resource; None for kinds that are not served.
PluralGetter = Callable[[str, str], str | None]


def check_parameters(attributes: AdmissionAttributes, authorizer: Authorizer, plural_of: PluralGetter) -> None:
    if attributes.group != GROUP or attributes.operation not in ("CREATE", "UPDATE") or attributes.subresource:
        return
    if MASTERS in attributes.user.groups:
        return
    new, old = attributes.new.get("spec") or {}, (attributes.old or {}).get("spec") or {}
    if attributes.resource == POLICIES:
        _check_policy(attributes, new, old, authorizer, plural_of)
    else:
        _check_binding(attributes, new, old, authorizer, plural_of)


def _check_policy(
    attributes: AdmissionAttributes, new: Object, old: Object, authorizer: Authorizer, plural_of: PluralGetter
) -> None:
    kind = new.get("paramKind")
    if not kind or kind == old.get("paramKind"):
        return
    group, plural = _target(kind, plural_of)
    access = AuthorizerAttributes("get", group, plural, namespace="*", name="*")
    if not authorizer.authorize(attributes.user, access).allowed:
        detail = (
            f'user {_format_user(attributes.user)} must have "get" permission on all objects of the referenced'
            f" paramKind (kind={kind.get('kind', '')}, apiVersion={kind.get('apiVersion', '')})"
        )
        error = field_errors.forbidden("spec.paramKind", detail)
        raise invalid("ValidatingAdmissionPolicy", GROUP, attributes.display_name, [error])


def _check_binding(
    attributes: AdmissionAttributes, new: Object, old: Object, authorizer: Authorizer, plural_of: PluralGetter
) -> None:
    reference = new.get("paramRef")
    if not reference or (reference == old.get("paramRef") and new.get("policyName") == old.get("policyName")):
        return
    policy = attributes.lister.get(GROUP, POLICIES, "", new.get("policyName") or "") or {}
    group, plural = _target((policy.get("spec") or {}).get("paramKind"), plural_of)
    namespace, name = reference.get("namespace") or "", reference.get("name") or ""
    access = AuthorizerAttributes("get", group, plural, namespace=namespace, name=name)
    if not authorizer.authorize(attributes.user, access).allowed:
        user = _format_user(attributes.user)
        detail = f'user {user} does not have "get" permission on the object referenced by paramRef'
        error = field_errors.forbidden("spec.paramRef", detail)
        raise invalid("ValidatingAdmissionPolicyBinding", GROUP, attributes.display_name, [error])


def _target(kind: Object | None, plural_of: PluralGetter) -> tuple[str, str]:
    """The group and plural of a kind; `*` for what is not known, which only a right to everything covers."""
    if not kind:
        return "*", "*"
    version = kind.get("apiVersion") or ""
    if version.count("/") > 1:
        return "*", "*"
    return version.rpartition("/")[0], plural_of(version, kind.get("kind") or "") or "*"


def _format_user(user: User) -> str:
    """The user as Go prints the server's own type."""
    extra = " ".join(f"{key}:[{' '.join(values)}]" for key, values in sorted(user.extra.items()))
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[{extra}]}}"
