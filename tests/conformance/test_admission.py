"""Dynamic admission on both servers: webhooks and policies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.access.webhook_server import WebhookServer, deny, patch_with, respond
from tests.conformance.objects import Space, config_map, crd, path
from tests.support.waiting import eventually

from torchyard.api.objects import Object


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    replies = {
        "label": patch_with({"op": "add", "path": "/data/stamped", "value": "yes"}),
        "deny": deny(message="not on a Sunday"),
        "warn": respond(allowed=True, warnings=["look out"]),
    }
    with WebhookServer(Path(tmp_path_factory.mktemp("hook")), replies) as running:
        yield running


def configuration(space: Space, hook: WebhookServer, kind: str, reply: str) -> Object:
    """A webhook for the config maps of one namespace."""
    return {
        "metadata": {"name": f"{space.name}-{reply}"},
        "webhooks": [
            {
                "name": f"{reply}.hook.torchyard.dev",
                "clientConfig": hook.config(reply),
                "rules": [
                    {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space.name}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


@pytest.fixture
def configured(space: Space, hook: WebhookServer) -> Iterator[Any]:
    created: list[str] = []

    def configure(kind: str, reply: str) -> None:
        answer = space.api.post(path(kind), configuration(space, hook, kind, reply))
        assert answer.status == 201, answer
        created.append(path(kind, f"{space.name}-{reply}"))

    yield configure
    for at in created:
        space.api.delete(at)


def test_a_mutating_webhook_changes_what_is_stored(space: Space, configured: Any) -> None:
    configured("mutatingwebhookconfigurations", "label")

    def stamped() -> bool:
        created = space.api.post(space.path("configmaps"), config_map("") | {"metadata": {"generateName": "c-"}}).json
        return bool(created["data"].get("stamped") == "yes")

    eventually(stamped, "a config map that the webhook changed")


def test_a_validating_webhook_rejects_with_its_own_message(space: Space, configured: Any) -> None:
    configured("validatingwebhookconfigurations", "deny")

    def refused() -> bool:
        answer = space.api.post(space.path("configmaps"), config_map("") | {"metadata": {"generateName": "c-"}})
        message = 'admission webhook "deny.hook.torchyard.dev" denied the request: not on a Sunday'
        return answer.status == 400 and answer.message == message

    eventually(refused, "the webhook's refusal")


def test_a_webhooks_warnings_reach_the_client(space: Space, configured: Any) -> None:
    configured("validatingwebhookconfigurations", "warn")

    def warned() -> bool:
        answer = space.api.post(space.path("configmaps"), config_map("") | {"metadata": {"generateName": "c-"}})
        return answer.status == 201 and '299 - "look out"' in answer.warnings

    eventually(warned, "the webhook's warning")


def test_a_policy_rejects_by_its_expression(space: Space) -> None:
    at = "/apis/admissionregistration.k8s.io/v1"
    name = f"{space.name}.torchyard.dev"
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space.name}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
                ],
            },
            "validations": [{"expression": "object.data.size() < 3", "message": "too much data"}],
        },
    }
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    assert space.api.post(f"{at}/validatingadmissionpolicies", policy).status == 201
    assert space.api.post(f"{at}/validatingadmissionpolicybindings", binding).status == 201
    try:
        big = config_map("") | {"metadata": {"generateName": "c-"}, "data": {"a": "1", "b": "2", "c": "3"}}

        def refused() -> bool:
            answer = space.api.post(space.path("configmaps"), big)
            return answer.status == 422 and "too much data" in answer.message

        eventually(refused, "the policy's refusal")
        small = config_map("") | {"metadata": {"generateName": "c-"}, "data": {"a": "1"}}
        assert space.api.post(space.path("configmaps"), small).status == 201
    finally:
        space.api.delete(f"{at}/validatingadmissionpolicybindings/{name}")
        space.api.delete(f"{at}/validatingadmissionpolicies/{name}")


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ("", []),
        ("/", []),
        ("/a/", []),
        ("a", ["must start with a '/'", "segment[0] may not be empty"]),
        ("//", ["segment[0] may not be empty"]),
        ("/a//b", ["segment[1] may not be empty"]),
    ],
)
def test_the_path_of_a_webhooks_service_may_be_empty(space: Space, given: str, errors: list[str]) -> None:
    """The same rule holds for admission webhooks and conversion webhooks."""
    client = {"service": {"name": "hook", "namespace": space.name, "path": given}}
    hook = {"name": "a.b.c", "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    body = {"metadata": {"name": space.name}, "webhooks": [hook]}
    definition = crd("pairs", names={"plural": "pairs", "kind": "Pair"})
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    for kind, obj in {
        "mutatingwebhookconfigurations": body,
        "validatingwebhookconfigurations": body,
        "customresourcedefinitions": definition,
    }.items():
        answer = space.api.post(path(kind), obj, query={"dryRun": "All"})
        causes = (answer.json.get("details") or {}).get("causes") or []
        assert [cause["message"] for cause in causes] == [f'Invalid value: "{given}": {error}' for error in errors]
        assert answer.status == (422 if errors else 201), answer
