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


def test_who_am_i() -> None:
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
def test_decisions_are_those_of_the_real_server(kube_bare: Server, authorizer: Authorizer) -> None:
    create_policy(kube_bare)
    for who, what in product(SUBJECTS, QUESTIONS):
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {**who, **what}}
        real = kube_bare.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review).json["status"]
        ours = subject_access_review(review, authorizer)
        assert ours == real, review["spec"]


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


def status_of(which: str, review: Object, authorizer: Authorizer) -> Object:
    match which:
        case "self":
            return self_subject_access_review(review, ADMIN, authorizer)
        case "subject":
            return subject_access_review(review, authorizer)
        case "local":
            return local_subject_access_review(review, "default", authorizer)
    return self_subject_rules_review(review, ADMIN, authorizer)


@pytest.mark.cluster
def test_bad_reviews_are_refused_in_the_real_servers_words(kube_bare: Server, authorizer: Authorizer) -> None:
    for which, spec in BAD_REVIEWS:
        kind, path = REVIEW_PATHS[which]
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec}
        if which == "local":
            review["metadata"] = {"namespace": "default"}
        real = kube_bare.admin.post(f"/apis/authorization.k8s.io/v1/{path}", review).json
        with pytest.raises(StatusError) as error:
            status_of(which, review, authorizer)
        assert error.value.body() == real


@pytest.mark.cluster
def test_the_rules_of_a_user_are_those_the_real_server_lists(kube_bare: Server, authorizer: Authorizer) -> None:
    create_policy(kube_bare)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    headers = {"Impersonate-User": "bob", "Impersonate-Group": "dev"}
    real = kube_bare.admin.post(path, review, headers=headers).json["status"]
    ours = self_subject_rules_review(review, BOB, authorizer)
    for field in ("resourceRules", "nonResourceRules"):
        assert canonical(ours.pop(field)) == canonical(real.pop(field))
    assert ours == real


def canonical(rules: list[Object]) -> list[str]:
    return sorted(json.dumps(rule, sort_keys=True) for rule in rules)
