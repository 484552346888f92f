"""The review kinds (SelfSubjectReview, SubjectAccessReview, ...), which are answered and not stored.

Every function takes the review as the client sent it and returns its status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.api import field_errors
from torchyard.api.errors import StatusError, bad_request, invalid
from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.rbac import Authorizer, AuthorizerAttributes, aggregate_errors

GROUP = "authorization.k8s.io"


def self_subject_review(user: User) -> Object:
    return {"userInfo": user.info()}


def self_subject_access_review(review: Object, user: User, authorizer: Authorizer) -> Object:
    return _status(authorizer, user, _attributes(review.get("spec") or {}))


def subject_access_review(review: Object, authorizer: Authorizer) -> Object:
    spec = review.get("spec") or {}
    return _status(authorizer, _subject(spec), _attributes(spec))


def local_subject_access_review(review: Object, namespace: str, authorizer: Authorizer) -> Object:
    """A SubjectAccessReview confined to the namespace of its path."""
    spec = review.get("spec") or {}
    if spec.get("nonResourceAttributes"):
        value = _go_value(spec["nonResourceAttributes"])
        raise _invalid("spec.nonResourceAttributes", value, "disallowed on this kind of request")
    subject, access = _subject(spec), _attributes(spec)
    if access.namespace != namespace:
        raise _invalid("spec.resourceAttributes.namespace", access.namespace, "must match metadata.namespace")
    return _status(authorizer, subject, access)


def self_subject_rules_review(review: Object, user: User, authorizer: Authorizer) -> Object:
    namespace = (review.get("spec") or {}).get("namespace")
    if not namespace:
        raise bad_request("no namespace on request")
    rules, missing = authorizer.rules_for(user, namespace)
    status: Object = {
        "resourceRules": [rule for rule in rules if rule.get("resources")],
        "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
    if missing:
        status["evaluationError"] = aggregate_errors(missing)
    return status


def _status(authorizer: Authorizer, user: User, access: AuthorizerAttributes) -> Object:
    decision = authorizer.authorize(user, access)
    return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}


def _subject(spec: Mapping[str, Any]) -> User:
    groups = tuple(spec.get("groups") or spec.get("group") or ())
    if not spec.get("user") and not groups:
        raise _invalid("spec.user", spec.get("user", ""), "at least one of user or group must be specified")
    extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
    return User(spec.get("user", ""), spec.get("uid", ""), groups, extra)


def _attributes(spec: Mapping[str, Any]) -> AuthorizerAttributes:
    on_resource, on_path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if on_resource is not None and on_path is not None:
        value = _go_value(on_path)
        raise _invalid(
            "spec.nonResourceAttributes", value, "cannot be specified in combination with resourceAttributes"
        )
    if on_path is not None:
        return AuthorizerAttributes(on_path.get("verb", ""), path=on_path.get("path", ""))
    if on_resource is None:
        reason = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid("spec.resourceAttributes", None, reason)
    return AuthorizerAttributes(
        on_resource.get("verb", ""),
        on_resource.get("group", ""),
        on_resource.get("resource", ""),
        subresource=on_resource.get("subresource", ""),
        namespace=on_resource.get("namespace", ""),
        name=on_resource.get("name", ""),
    )


def _go_value(attributes: Mapping[str, Any]) -> Object:
    """The attributes as the real server prints its internal struct in a message."""
    return {"Path": attributes.get("path", ""), "Verb": attributes.get("verb", "")}


def _invalid(field: str, value: Any, reason: str) -> StatusError:
    # The real server names no kind here, only the group.
    return invalid("", GROUP, "", [field_errors.invalid(field, value, reason)])
