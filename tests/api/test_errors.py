"""API errors as clients receive them."""

from __future__ import annotations

import pytest

from torchyard.api import errors, field_errors


def test_invalid_lists_every_error_with_its_field() -> None:
    error = errors.invalid(
        "Job",
        "batch",
        "train",
        [
            field_errors.required("spec.template"),
            field_errors.invalid("spec.completions", -1, "must be greater than or equal to 0"),
        ],
    )
    body = error.body()
    assert body["code"] == 422
    assert body["message"] == (
        'Job.batch "train" is invalid: [spec.template: Required value, '
        "spec.completions: Invalid value: -1: must be greater than or equal to 0]"
    )
    assert body["details"]["causes"][0] == {
        "reason": "FieldValueRequired",
        "message": "Required value",
        "field": "spec.template",
    }


@pytest.mark.parametrize(
    ("error", "status", "reason", "message"),
    [
        (errors.not_found("pods", "", "a"), 404, "NotFound", 'pods "a" not found'),
        (errors.already_exists("jobs", "batch", "a"), 409, "AlreadyExists", 'jobs.batch "a" already exists'),
        (errors.forbidden("pods", "", "", "no"), 403, "Forbidden", "pods is forbidden: no"),
        (errors.unauthorized(), 401, "Unauthorized", "Unauthorized"),
    ],
)
def test_status_objects_match_kube_apiserver(error: errors.StatusError, status: int, reason: str, message: str) -> None:
    body = error.body()
    assert (body["code"], body["reason"], body["message"]) == (status, reason, message)
    assert body["status"] == "Failure"


def test_a_yard_error_includes_its_hint() -> None:
    error = errors.YardError("the port is taken", hint="choose another with --port", code="PortTaken")
    assert (error.code, str(error)) == ("PortTaken", "the port is taken (choose another with --port)")
