"""Webhooks and policies decide as on a real server, whose verdicts are recorded and can be checked."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.access import webhook_cases as cases
from tests.apiserver.access import webhook_kubernetes
from tests.apiserver.access.webhook_server import WebhookServer, deny, patch_with, respond
from tests.support.kubernetes import Server

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.schema.builtin import type_of
from torchyard.apiserver.access.webhooks.dispatch import WebhookDispatcher
from torchyard.apiserver.access.webhooks.policies import PolicyValidator
from torchyard.apiserver.access.webhooks.policy_evaluation import policy_errors
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes

CONFIG_MAPS = Resource(
    group="",
    version="v1",
    plural="configmaps",
    singular="configmap",
    kind="ConfigMap",
    namespaced=True,
    verbs=("create",),
    load_type=partial(type_of, GroupVersionKind("", "v1", "ConfigMap")),
)
ADMIN = {"username": "admin", "groups": ["system:masters"]}


def namespace(name: str) -> Object:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    replies = {name: case[1] for name, case in cases.WEBHOOKS.items()}
    with WebhookServer(tmp_path_factory.mktemp("webhook"), replies) as running:
        yield running


@pytest.fixture
async def webhooks(server: WebhookServer) -> AsyncIterator[WebhookDispatcher]:
    configurations = cases.configurations(server)
    dispatcher = WebhookDispatcher(lambda plural: [configurations[plural]], namespace)
    yield dispatcher
    await dispatcher.close()


@pytest.fixture(scope="module")
def policies() -> PolicyValidator:
    policy_objects, bound = cases.policies()
    return PolicyValidator(
        lambda: policy_objects, lambda: bound, namespace, parameters=lambda version, kind, namespace: [cases.PARAMETERS]
    )


def attributes_of(name: str, way: str) -> VersionedAttributes:
    new, old = cases.config_map(name), cases.config_map(name)
    common: Any = {"namespace": "default", "name": name, "user": ADMIN}
    match way:
        case "delete":
            return VersionedAttributes("DELETE", CONFIG_MAPS, None, old, **common)
        case "update":
            return VersionedAttributes("UPDATE", CONFIG_MAPS, cases.config_map(name, more="data"), old, **common)
    return VersionedAttributes("CREATE", CONFIG_MAPS, new, None, dry_run=way == "dry-run", **common)


async def verdict(
    webhooks: WebhookDispatcher, policies: PolicyValidator, attributes: VersionedAttributes, port: int
) -> Object:
    try:
        admitted = await webhooks.mutate(attributes)
        final = attributes.with_object(admitted.obj)
        warnings = [*admitted.warnings, *await webhooks.validate(final), *policies.validate(final)]
    except StatusError as error:
        refusal = cases.denial(error.status, error.reason, error.message, error.details, port)
        return dict(json.loads(re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", json.dumps(refusal))))
    return {"data": (final.obj or {}).get("data"), "warnings": warnings}


WAYS = {name: case[3] for name, case in cases.WEBHOOKS.items()} | {n: case[2] for n, case in cases.POLICIES.items()}


@pytest.mark.parametrize("name", WAYS)
async def test_each_case_has_the_recorded_verdict_of_a_real_server(
    name: str, server: WebhookServer, webhooks: WebhookDispatcher, policies: PolicyValidator
) -> None:
    assert await verdict(webhooks, policies, attributes_of(name, WAYS[name]), server.port) == cases.recorded()[name]


def test_the_server_returns_the_recorded_verdicts_of_a_real_one(yard: Server, server: WebhookServer) -> None:
    verdicts, recorded = webhook_kubernetes.verdicts(yard.admin, server), cases.recorded()
    assert {name: result for name, result in verdicts.items() if result != recorded[name]} == {}
    assert verdicts.keys() == recorded.keys()


@pytest.mark.cluster
def test_a_real_server_returns_the_recorded_verdicts(kube_bare: Server, server: WebhookServer) -> None:
    assert webhook_kubernetes.verdicts(kube_bare.admin, server) == cases.recorded()


def hook(server: WebhookServer, path: str, **more: Any) -> Object:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    return {
        "name": f"{path}.example.com",
        "clientConfig": server.config(path),
        "sideEffects": "None",
        "rules": [rule],
        **more,
    }


class Configured:
    """Webhooks of one configuration for a test of their own."""

    def __init__(self, directory: Path, replies: dict[str, Any], **options: Any) -> None:
        self.server = WebhookServer(directory, replies)
        self.hooks: dict[str, list[Object]] = {}
        self.webhooks = WebhookDispatcher(self._configurations, options.pop("namespace", namespace), **options)

    def _configurations(self, plural: str) -> list[Object]:
        configuration = self.hooks.get(plural.removesuffix("webhookconfigurations"))
        return [{"metadata": {"name": "mine"}, "webhooks": configuration}] if configuration else []

    async def __aenter__(self) -> Configured:
        await asyncio.to_thread(self.server.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.webhooks.close()
        await asyncio.to_thread(self.server.__exit__)


async def test_an_admission_review_contains_the_request(tmp_path: Path) -> None:
    async with Configured(tmp_path, {"ok": respond(allowed=True)}) as configured:
        configured.hooks["validating"] = [hook(configured.server, "ok")]
        await configured.webhooks.validate(attributes_of("patched", "update"))
        ((_, review),) = configured.server.reviews
    request = review["request"]
    assert review["kind"] == "AdmissionReview"
    assert request.pop("uid")
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert request == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "patched",
        "namespace": "default",
        "operation": "UPDATE",
        "userInfo": ADMIN,
        "object": cases.config_map("patched", more="data"),
        "oldObject": cases.config_map("patched"),
        "dryRun": False,
        "options": None,
    }


async def test_mutating_webhooks_see_earlier_changes(tmp_path: Path) -> None:
    replies = {
        "one": patch_with({"op": "add", "path": "/data/one", "value": "1"}),
        "two": patch_with({"op": "add", "path": "/data/two", "value": "2"}),
    }
    async with Configured(tmp_path, replies) as configured:
        configured.hooks["mutating"] = [hook(configured.server, "one"), hook(configured.server, "two")]
        before = attributes_of("x", "create")
        sent = copy.deepcopy(before.obj)
        admitted = await configured.webhooks.mutate(before)
        calls = [(path, sorted(review["request"]["object"]["data"])) for path, review in configured.server.reviews]
    assert admitted.obj is not None
    assert admitted.obj["data"] == {"a": "b", "one": "1", "two": "2"}
    assert calls == [("one", ["a"]), ("two", ["a", "one"])]
    assert before.obj == sent  # the object given is left alone


async def test_reinvocation_policy_if_needed_calls_a_webhook_again_after_a_later_change(tmp_path: Path) -> None:
    replies = {
        "curious": respond(allowed=True),
        "plain": respond(allowed=True),
        "changes": patch_with({"op": "add", "path": "/data/x", "value": "y"}),
        "late": respond(allowed=True),
    }
    async with Configured(tmp_path, replies) as configured:
        configured.hooks["mutating"] = [
            hook(configured.server, "curious", reinvocationPolicy="IfNeeded"),
            hook(configured.server, "plain", reinvocationPolicy="Never"),
            hook(configured.server, "changes", reinvocationPolicy="IfNeeded"),
            hook(configured.server, "late", reinvocationPolicy="IfNeeded"),
        ]
        await configured.webhooks.mutate(attributes_of("x", "create"))
        assert [path for path, _ in configured.server.reviews] == ["curious", "plain", "changes", "late", "curious"]


async def test_no_webhook_is_reinvoked_without_a_change(tmp_path: Path) -> None:
    async with Configured(tmp_path, {"curious": respond(allowed=True)}) as configured:
        configured.hooks["mutating"] = [hook(configured.server, "curious", reinvocationPolicy="IfNeeded")] * 2
        before = attributes_of("x", "create")
        admitted = await configured.webhooks.mutate(before)
        assert admitted.obj is before.obj
        assert len(configured.server.reviews) == 2


async def test_a_deletion_cannot_be_patched(tmp_path: Path) -> None:
    async with Configured(tmp_path, {"p": patch_with({"op": "add", "path": "/data", "value": {}})}) as configured:
        configured.hooks["mutating"] = [hook(configured.server, "p")]
        with pytest.raises(StatusError, match="attempted to modify the object, which is not supported"):
            await configured.webhooks.mutate(attributes_of("x", "delete"))


async def test_a_webhook_with_side_effects_rejects_a_dry_run(tmp_path: Path) -> None:
    async with Configured(tmp_path, {"ok": respond(allowed=True)}) as configured:
        configured.hooks["validating"] = [hook(configured.server, "ok", sideEffects="Some")]
        with pytest.raises(StatusError) as excinfo:
            await configured.webhooks.validate(attributes_of("x", "dry-run"))
        assert excinfo.value.status == 400
        assert excinfo.value.message == 'admission webhook "ok.example.com" does not support dry run'


async def test_admission_configuration_is_exempt_from_admission(tmp_path: Path) -> None:
    async with Configured(tmp_path, {"no": deny()}) as configured:
        configured.hooks["validating"] = [hook(configured.server, "no")]
        own = Resource(
            group="admissionregistration.k8s.io",
            version="v1",
            plural="validatingwebhookconfigurations",
            singular="validatingwebhookconfiguration",
            kind="ValidatingWebhookConfiguration",
            namespaced=False,
            verbs=("create",),
        )
        assert (
            await configured.webhooks.validate(
                VersionedAttributes("CREATE", own, {"metadata": {"name": "x"}}, name="x")
            )
            == []
        )
        assert configured.server.reviews == []


async def test_a_service_is_called_at_its_endpoint_with_its_dns_name(tmp_path: Path) -> None:
    resolved: list[tuple[str, str, int]] = []

    async def resolve(namespace: str, name: str, port: int) -> tuple[str, int]:
        resolved.append((namespace, name, port))
        return "127.0.0.1", configured.server.port

    async with Configured(tmp_path, {"ok": respond(allowed=True, warnings=["hi"])}, resolve=resolve) as configured:
        service = {"name": "hook", "namespace": "default", "path": "/ok", "port": 8443}
        config = {"service": service, "caBundle": configured.server.ca}
        configured.hooks["validating"] = [hook(configured.server, "ok", clientConfig=config)]
        # the certificate is for hook.default.svc, so this succeeds only under that name
        assert await configured.webhooks.validate(attributes_of("x", "create")) == ["hi"]
    assert resolved == [("default", "hook", 8443)]


async def test_match_policy_equivalent_converts_the_object(tmp_path: Path) -> None:
    def widgets(version: str) -> Resource:
        return Resource(
            group="example.com",
            version=version,
            plural="widgets",
            singular="widget",
            kind="Widget",
            namespaced=True,
            verbs=("create",),
        )

    async with Configured(
        tmp_path, {"ok": respond(allowed=True)}, equivalents=lambda resource: [widgets("v1")]
    ) as configured:
        rule = {"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]}
        configured.hooks["validating"] = [hook(configured.server, "ok", rules=[rule])]
        obj = {"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w"}}
        await configured.webhooks.validate(
            VersionedAttributes("CREATE", widgets("v2"), obj, namespace="default", name="w")
        )
        ((_, review),) = configured.server.reviews
        request = review["request"]
        assert request["resource"]["version"] == "v1"
        assert request["requestResource"]["version"] == "v2"
        assert request["object"]["apiVersion"] == "example.com/v1"
        configured.hooks["validating"] = [hook(configured.server, "ok", rules=[rule], matchPolicy="Exact")]
        await configured.webhooks.validate(
            VersionedAttributes("CREATE", widgets("v2"), obj, namespace="default", name="w")
        )
        assert len(configured.server.reviews) == 1


async def test_an_invalid_webhook_response_is_a_failure(tmp_path: Path) -> None:
    nonsense = [b"{foo", b"[]", b"5", b'"x"', b"\xff", b'{"kind": "AdmissionReview"}', b'{"response": 5}']
    replies = {f"n{index}": (lambda _, body=body: (200, body)) for index, body in enumerate(nonsense)}
    async with Configured(tmp_path, replies) as configured:
        for path in replies:
            configured.hooks["validating"] = [hook(configured.server, path)]
            with pytest.raises(StatusError, match="failed calling webhook") as excinfo:
                await configured.webhooks.validate(attributes_of("x", "create"))
            assert excinfo.value.status == 500


def test_policy_expressions_are_compiled_when_the_policy_is_written() -> None:
    policy = {
        "spec": {
            "variables": [{"name": "ok", "expression": "'text'"}, {"name": "bad", "expression": "nosuch"}],
            "matchConditions": [{"name": "c", "expression": "1"}],
            "validations": [
                {"expression": "variables.ok == 'text'", "messageExpression": "variables.ok"},
                {"expression": "object.data.a", "messageExpression": "object.data.a"},
                {"expression": "variables.nosuch == 1"},
            ],
        }
    }
    assert [(error.field, error.message.split("\n")[0]) for error in policy_errors(policy)] == [
        (
            "spec.variables[1].expression",
            'Invalid value: "nosuch": compilation failed: ERROR: <input>:1:1: '
            "undeclared reference to 'nosuch' (in container '')",
        ),
        ("spec.matchConditions[0].expression", 'Invalid value: "1": must evaluate to bool but got int'),
        ("spec.validations[1].expression", 'Invalid value: "object.data.a": must evaluate to bool but got dyn'),
        (
            "spec.validations[1].messageExpression",
            'Invalid value: "object.data.a": must evaluate to string but got dyn',
        ),
        (
            "spec.validations[2].expression",
            'Invalid value: "variables.nosuch == 1": compilation failed: ERROR: <input>:1:10: '
            "undefined field 'nosuch'",
        ),
    ]
