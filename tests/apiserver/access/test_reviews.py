"""The review kinds, compared with a real server."""

from __future__ import annotations

import json
from itertools import product

import pytest
from tests.apiserver.access.rbac_objects import ADMIN, BOB, create_policy
from tests.support.kubernetes import Server

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.access.rbac import GROUP, Authorizer
from torchyard.apiserver.access.reviews import (
    local_subject_access_review,
    self_subject_access_review,
    self_subject_review,
    self_subject_rules_review,
    subject_access_review,
)


def test_self_subject_review_returns_the_user() -> None:
    assert self_subject_review(BOB) == {
        "userInfo": {"username": "bob", "groups": ["dev", "system:authenticated"]},
    }


SUBJECTS: list[Object] = [
    {"user": "bob"},
    {"user": "bob", "groups": ["dev"]},
    {"user": "al", "groups": ["dev"]},
    {"user": "system:serviceaccount:default:robot"},
    {"user": "x", "groups": ["system:masters"]},
]
QUESTIONS: list[Object] = [
    {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace, "name": name, **more}}
    for (verb, resource, namespace, name), more in product(
        [
            ("get", "pods", "default", "p"),
            ("get", "pods", "other", "p"),
            ("delete", "pods", "default", "p"),
            ("get", "secrets", "default", "a"),
            ("get", "secrets", "default", "c"),
            ("list", "secrets", "default", ""),
            ("update", "secrets", "default", "b"),
            ("get", "deployments", "default", "d"),
            ("create", "roles", "", ""),
            ("*", "*", "", ""),
        ],
        [{}, {"subresource": "scale", "group": "apps"}, {"subresource": "log"}, {"group": GROUP}],
    )
] + [
    {"nonResourceAttributes": {"verb": verb, "path": path}}
    for verb, path in product(["get", "post"], ["/metrics", "/debug/x", "/debug", "/xfoo", "*foo", "/"])
]


@pytest.mark.cluster
def test_access_reviews_match_the_real_server(kube_bare: Server, authorizer: Authorizer) -> None:
    create_policy(kube_bare)
    for subject, attributes in product(SUBJECTS, QUESTIONS):
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {**subject, **attributes},
        }
        real = kube_bare.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review).json["status"]
        status = subject_access_review(review, authorizer)
        assert status == real, review["spec"]


BAD_REVIEWS: list[tuple[str, Object]] = [
    ("self", {}),
    ("self", {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/"}}),
    ("subject", {"resourceAttributes": {"verb": "get"}}),
    ("local", {"user": "bob", "resourceAttributes": {"verb": "get", "namespace": "other"}}),
    ("local", {"user": "bob", "nonResourceAttributes": {"verb": "get", "path": "/"}}),
    ("rules", {"namespace": ""}),
]
REVIEW_PATHS = {
    "self": ("SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    "subject": ("SubjectAccessReview", "subjectaccessreviews"),
    "local": ("LocalSubjectAccessReview", "namespaces/default/localsubjectaccessreviews"),
    "rules": ("SelfSubjectRulesReview", "selfsubjectrulesreviews"),
}


def status_of(kind: str, review: Object, authorizer: Authorizer) -> Object:
    match kind:
        case "self":
            return self_subject_access_review(review, ADMIN, authorizer)
        case "subject":
            return subject_access_review(review, authorizer)
        case "local":
            return local_subject_access_review(review, "default", authorizer)
    return self_subject_rules_review(review, ADMIN, authorizer)


@pytest.mark.cluster
def test_invalid_reviews_fail_with_the_real_servers_messages(kube_bare: Server, authorizer: Authorizer) -> None:
    for review_name, spec in BAD_REVIEWS:
        kind, path = REVIEW_PATHS[review_name]
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec}
        if review_name == "local":
            review["metadata"] = {"namespace": "default"}
        real = kube_bare.admin.post(f"/apis/authorization.k8s.io/v1/{path}", review).json
        with pytest.raises(StatusError) as error:
            status_of(review_name, review, authorizer)
        assert error.value.body() == real


@pytest.mark.cluster
def test_self_subject_rules_review_matches_the_real_server(kube_bare: Server, authorizer: Authorizer) -> None:
    create_policy(kube_bare)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    headers = {"Impersonate-User": "bob", "Impersonate-Group": "dev"}
    real = kube_bare.admin.post(path, review, headers=headers).json["status"]
    status = self_subject_rules_review(review, BOB, authorizer)
    for field in ("resourceRules", "nonResourceRules"):
        assert canonical(status.pop(field)) == canonical(real.pop(field))
    assert status == real


def canonical(rules: list[Object]) -> list[str]:
    return sorted(json.dumps(rule, sort_keys=True) for rule in rules)
