"""The review kinds (SelfSubjectReview, SubjectAccessReview, ...), which are answered and not stored.

Every function takes the review as the client sent it and returns its status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.api import field_errors
from torchyard.api.access.review_selectors import ignored_selectors, selector_errors
from torchyard.api.errors import bad_request, invalid
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.rbac import Authorizer, AuthorizerAttributes, aggregate_errors

GROUP = "authorization.k8s.io"


def self_subject_review(user: User) -> Object:
    return {"userInfo": user.info()}


def self_subject_access_review(review: Object, user: User, authorizer: Authorizer) -> Object:
    spec = review.get("spec") or {}
    _raise_if(_spec_errors(spec) + _metadata_errors(review))
    return _status(authorizer, user, spec)


def subject_access_review(review: Object, authorizer: Authorizer) -> Object:
    spec = review.get("spec") or {}
    _raise_if(_spec_errors(spec) + _subject_errors(spec) + _metadata_errors(review))
    return _status(authorizer, _subject(spec), spec)


def local_subject_access_review(review: Object, namespace: str, authorizer: Authorizer) -> Object:
    """A SubjectAccessReview confined to the namespace of its path."""
    spec = review.get("spec") or {}
    errs = _spec_errors(spec) + _subject_errors(spec)
    errs += _metadata_errors(review, "must be empty except for namespace")
    on_resource, on_path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if on_resource is not None and on_resource.get("namespace", "") != namespace:
        field, value = "spec.resourceAttributes.namespace", on_resource.get("namespace", "")
        errs.append(field_errors.invalid(field, value, "must match metadata.namespace"))
    if on_path is not None:
        value = _go_value(on_path)
        errs.append(field_errors.invalid("spec.nonResourceAttributes", value, "disallowed on this kind of request"))
    _raise_if(errs)
    return _status(authorizer, _subject(spec), spec)


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


def _status(authorizer: Authorizer, user: User, spec: Mapping[str, Any]) -> Object:
    decision = authorizer.authorize(user, _attributes(spec))
    status: Object = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    # RBAC does not evaluate selectors; a selector that nothing could evaluate is reported all the same.
    ignored = ignored_selectors(spec.get("resourceAttributes") or {})
    if ignored:
        status["evaluationError"] = aggregate_errors(ignored)
    return status


def _subject(spec: Mapping[str, Any]) -> User:
    groups = tuple(spec.get("groups") or spec.get("group") or ())
    extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
    return User(spec.get("user", ""), spec.get("uid", ""), groups, extra)


def _attributes(spec: Mapping[str, Any]) -> AuthorizerAttributes:
    on_resource, on_path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if on_path is not None:
        return AuthorizerAttributes(on_path.get("verb", ""), path=on_path.get("path", ""))
    assert on_resource is not None  # one of them is there: see `_spec_errors`
    return AuthorizerAttributes(
        on_resource.get("verb", ""),
        on_resource.get("group", ""),
        on_resource.get("resource", ""),
        subresource=on_resource.get("subresource", ""),
        namespace=on_resource.get("namespace", ""),
        name=on_resource.get("name", ""),
    )


def _spec_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    on_resource, on_path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    errs: list[FieldError] = []
    if on_resource is not None and on_path is not None:
        reason = "cannot be specified in combination with resourceAttributes"
        errs.append(field_errors.invalid("spec.nonResourceAttributes", _go_value(on_path), reason))
    if on_resource is None and on_path is None:
        reason = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errs.append(field_errors.invalid("spec.resourceAttributes", None, reason))
    return errs + (selector_errors(on_resource) if on_resource is not None else [])


def _subject_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    if spec.get("user") or spec.get("groups") or spec.get("group"):
        return []
    reason = "at least one of user or group must be specified"
    return [field_errors.invalid("spec.user", spec.get("user", ""), reason)]


def _metadata_errors(review: Object, detail: str = "must be empty") -> list[FieldError]:
    metadata = {
        key: value
        for key, value in (review.get("metadata") or {}).items()
        if value and key not in ("namespace", "managedFields")
    }
    return [field_errors.invalid("metadata", metadata, detail)] if metadata else []


def _go_value(attributes: Mapping[str, Any]) -> Object:
    """The attributes as the real server prints its internal struct in a message."""
    return {"Path": attributes.get("path", ""), "Verb": attributes.get("verb", "")}


def _raise_if(errs: list[FieldError]) -> None:
    if errs:
        # The real server names no kind here, only the group.
        raise invalid("", GROUP, "", errs)
